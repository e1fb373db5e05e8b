package format

// Scope is which pods a command looks at, for people.
type Scope struct{ Namespace, Node, Selector string }

func (s Scope) String() string {
	if s.Namespace == "" {
		return "all namespaces" + s.rest()
	}
	return "namespace " + s.Namespace + s.rest()
}

// None is the scope after "no pod in".
func (s Scope) None() string {
	if s.Namespace == "" {
		return "any namespace" + s.rest()
	}
	return s.String()
}

func (s Scope) rest() (text string) {
	if s.Node != "" {
		text += " on node " + s.Node
	}
	if s.Selector != "" {
		text += " with " + s.Selector
	}
	return text
}

func NamespaceScope(namespace string) string { return Scope{Namespace: namespace}.String() }
