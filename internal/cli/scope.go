package cli

// scope is which pods a command looks at, for people.
type scope struct{ namespace, node, selector string }

func (s scope) String() string {
	if s.namespace == "" {
		return "all namespaces" + s.rest()
	}
	return "namespace " + s.namespace + s.rest()
}

// none is the scope after "no pod in".
func (s scope) none() string {
	if s.namespace == "" {
		return "any namespace" + s.rest()
	}
	return s.String()
}

func (s scope) rest() (text string) {
	if s.node != "" {
		text += " on node " + s.node
	}
	if s.selector != "" {
		text += " with " + s.selector
	}
	return text
}

func namespaceText(namespace string) string { return scope{namespace: namespace}.String() }
