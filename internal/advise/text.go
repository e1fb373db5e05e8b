package advise

import (
	"fmt"
	"strings"
	"time"
)

// apiVersions are those of the kinds whose pod template can be patched.
var apiVersions = map[string]string{"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1"}

// Patch is the advice as strategic merge patches, one document for each workload, and what cannot be patched as comments.
func Patch(advice []Advice) string {
	var b strings.Builder
	var open Key // the workload whose document is being written
	for _, a := range advice {
		kind, name, _ := strings.Cut(a.Workload, "/")
		version := apiVersions[kind]
		switch {
		case a.Advised == nil:
			fmt.Fprintf(&b, "# %s %s, container %s: %s\n", a.Namespace, a.Workload, a.Container, a.Reason)
			continue
		case version == "":
			fmt.Fprintf(&b, "# %s %s, container %s: %s; a %s has no template to patch\n", a.Namespace, a.Workload, a.Container, a.Advised, kind)
			continue
		}
		if of := (Key{Namespace: a.Namespace, Workload: a.Workload}); of != open {
			open = of
			fmt.Fprintf(&b, "---\n# kubectl -n %s patch %s %s --patch-file FILE, with this document in FILE\n", a.Namespace, strings.ToLower(kind), name)
			fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nmetadata:\n  namespace: %q\n  name: %q\n", version, kind, a.Namespace, name)
			b.WriteString("spec:\n  template:\n    spec:\n      containers:\n")
		}
		fmt.Fprintf(&b, "      - name: %q # %s\n        resources:\n          requests:\n            cpu: %s # was %s\n",
			a.Container, a.basis(), a.Advised.Request, orNone(a.Declared.Request.String()))
		if a.Advised.Limit > 0 {
			fmt.Fprintf(&b, "          limits:\n            cpu: %s # was %s\n", a.Advised.Limit, a.Declared.Limit)
		}
	}
	return b.String()
}

func (a *Amounts) String() string {
	if a.Limit == 0 {
		return fmt.Sprintf("request %v", a.Request)
	}
	return fmt.Sprintf("request %v, limit %v", a.Request, a.Limit)
}

// basis is what the advice rests on.
func (a *Advice) basis() string {
	pods := "1 pod"
	if a.Pods != 1 {
		pods = fmt.Sprintf("%d pods", a.Pods)
	}
	return fmt.Sprintf("%v of %s, %.0f%% of it hindered", a.Covered.Round(time.Second), pods, 100*a.Hindered)
}

func orNone(amount string) string {
	if amount == "0m" {
		return "none"
	}
	return amount
}
