package config_test

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
)

// attempts are who tries what, and how it ends.
func attempts() []attempt {
	return slices.Concat(ofAgents(), ofTokens(), ofController(), ofControllerElsewhere(), ofControllerRecords(), ofKubelets(), ofTenants(), ofSignals(), ofPluginUsers(), ofClusterAdmins())
}

func ofAgents() []attempt {
	const shop, other = "shop/web", "shop/other"
	return []attempt{
		{agent1, "decide for a pod of its node", decide(shop), "", ""},
		{agent1, "take a decision back", write(shop, `{"spec":{"desiredCPULimit":null,"containers":null,"decision":null}}`), "", ""},
		{agent1, "renew its Lease", beat("mbcas-agent-node-1"), "", ""},
		{agent2, "decide for a pod of its node", decide(other), "", ""},

		{agent1, "decide for a pod of node-2", decide(other), agents, "of that node only"},
		{agent2, "decide for a pod of node-1", decide(shop), agents, "of that node only"},
		{agent1, "label a PodAllocation", write(shop, `{"metadata":{"labels":{"x":"y"}}}`), agents, "no metadata"},
		{agent1, "annotate one", write(shop, `{"metadata":{"annotations":{"x":"y"}}}`), agents, "no metadata"},
		{agent1, "keep one from being deleted", write(shop, `{"metadata":{"finalizers":["x.io/y"]}}`), agents, "no metadata"},
		{agent1, "take one from its pod", write(shop, `{"metadata":{"ownerReferences":null}}`), agents, "no metadata"},
		{agent1, "beat for node-2", renew("mbcas-agent-node-2"), leases, "the Lease mbcas-agent-node-1 of mbcas-system only"},
		{agent1, "take the controllers' Lease", renew("mbcas-controller"), leases, "the Lease mbcas-agent-node-1 of mbcas-system only"},

		{agent1, "move a PodAllocation of node-2 to its node", write(other, `{"spec":{"nodeName":"node-1"}}`), bySchema, "nodeName is immutable"},
		{agent1, "turn it to a pod of another name", write(shop, `{"spec":{"podRef":{"name":"bank"}}}`), bySchema, "podRef is immutable"},
		{agent1, "turn it to another pod", write(shop, `{"spec":{"podRef":{"uid":"x"}}}`), bySchema, "podRef is immutable"},
		{agent1, "decide more than the ceiling", decide(shop, "2000m", "400m"), bySchema, "must not be above decision.ceiling"},
		{agent1, "decide less than the floor", decide(shop, "110m", "600m"), bySchema, "must not be below decision.floor"},
		{agent1, "decide less than 10m", decide(shop, "500m", "9m", "110m", "0m"), bySchema, "must be at least 10m"},
		{agent1, "decide more than 99999 cores", decide(shop, "500m", "100000000m", "2000m", "100000000m"), bySchema, "spec.desiredCPULimit"},
		{agent1, "decide a limit below 0", decide(shop, "500m", "-500m"), bySchema, "spec.desiredCPULimit"},
		{agent1, "decide what is no figure", decide(shop, "500m", "lots"), bySchema, "spec.desiredCPULimit"},
		{agent1, "decide a total that is not the sum", decide(shop, `"cpuLimit":"500m"`, `"cpuLimit":"400m"`), bySchema, "must be the sum"},
		{agent1, "decide for 65 containers", decide(shop, `{"name":"app","cpuLimit":"500m"}`, many(65)), bySchema, "must have at most 64 items"},
		{agent1, "bid more than there is", decide(shop, `"budget":100`, `"budget":9000000000000000000`), bySchema, "spec.decision.budget"},
		{agent1, "publish a price that is no figure", decide(shop, `"0.000"`, `"free"`), bySchema, "spec.decision.price"},

		{agent1, "write a status", status(shop, `"phase":"Applied"`), byRBAC, "podallocations/status"},
		{agent1, "create a PodAllocation", allocate("shop/moved", nil), byRBAC, "cannot create resource"},
		{agent1, "delete a PodAllocation", deallocate(shop), byRBAC, "cannot delete resource"},
		{agent1, "delete a Lease", lapse("mbcas-controller"), byRBAC, "cannot delete resource"},
		{agent1, "resize a pod", limit(shop, "app", "300m"), byRBAC, "pods/resize"},
		{agent1, "change a pod", edit(shop, `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`), byRBAC, "cannot patch resource"},
		{agent1, "evict a pod", evict(shop), byRBAC, "pods/eviction"},
		{agent1, "pause everything", store(system, "mbcas"), byRBAC, "cannot create resource"},
		{agent1, "read Secrets", may("get", "secrets", "", system), byRBAC, ""},
		{agent1, "run commands through a kubelet", may("get", "nodes", "proxy", ""), byRBAC, ""},
		{agent1, "get a token of the controller", token(controllerAccount, ""), byRBAC, "serviceaccounts/token"},
		{agent1, "pass for the controller", impersonated(controllerAccount), byRBAC, ""},

		{agent1, "fill in a status beside its decision", smuggle(shop, `{"status":{"phase":"Applied","reason":"Mine"}}`), byNobody, ""},
		{agent1, "set terms beside its decision", smuggle(shop, `{"status":{"constraints":{"coordinationPercent":200}}}`), byNobody, ""},
	}
}

// many is a list of containers without its brackets, 10m each.
func many(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = `{"name":"c` + strings.Repeat("x", i/10) + string(rune('0'+i%10)) + `","cpuLimit":"10m"}`
	}
	return strings.Join(list, ",")
}

func ofTokens() []attempt {
	return []attempt{
		{looseAgent, "decide for a pod", decide("shop/web"), agents, "must name its node"},
		{looseAgent, "beat for a node", beat("mbcas-agent-node-1"), leases, "of mbcas-system only"},
		{foreignAgent, "decide for a pod of its node", decide("shop/web"), byToken, ""},
		{orphanedAgent, "decide for a pod of its node", decide("shop/web"), byToken, ""},
	}
}

func ofController() []attempt {
	const web = "shop/web"
	return []attempt{
		{controller, "raise a CPU limit", limit(web, "app", "4"), "", ""},
		{controller, "lower a CPU limit", limit(web, "app", "110m"), "", ""},
		{controller, "raise a CPU limit of a sidecar", limit(web, "proxy", "300m"), "", ""},
		{controller, "change two at once", through(web, `"containers":[{"name":"app","resources":{"limits":{"cpu":"1"}}}],"initContainers":[{"name":"proxy","resources":{"limits":{"cpu":"1"}}}]`, us), "", ""},
		{controller, "change 64 at once", wide, "", ""},

		{controller, "change a CPU request", resources(web, "app", `"requests":{"cpu":"50m"}`), resizes, "changes no request"},
		{controller, "change a CPU request of a sidecar", resources(web, "proxy", `"requests":{"cpu":"20m"}`), resizes, "changes no request"},
		{controller, "change a memory request", resources(web, "app", `"requests":{"memory":"20Mi"}`), resizes, "changes no request"},
		{controller, "change a memory limit", resources(web, "app", `"limits":{"memory":"200Mi"}`), resizes, "no limit but that of CPU"},
		{controller, "give a limit to a container without one", limit(web, "side", "300m"), resizes, "adds none"},
		{controller, "make one of a limit of 0", limit(web, "open", "300m"), resizes, "no limit to a container without one"},
		{controller, "set a limit of 0, which is none", limit(web, "free", "0"), resizes, "between 1m and 99999999m"},
		{controller, "set a limit of 100000 cores", limit(web, "app", "100000"), resizes, "between 1m and 99999999m"},
		{controller, "change pod-level resources", through("shop/whole", `"resources":{"limits":{"cpu":"5"}}`, us), resizes, "pod-level resources"},
		{controller, "restart a container by changing its limit", limit(web, "tied", "200m"), resizes, "restarts the container"},
		{controller, "change an init container that runs to completion", limit(web, "setup", "200m"), resizes, "runs to completion"},
		{controller, "change a limit under another name", through(web, `"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"}}}]`, "kubectl-edit"), resizes, "under its own name"},
		{controller, "change a limit by server-side apply", applied(web, "300m"), resizes, "under its own name"},

		{controller, "lower a limit below its request", limit(web, "app", "50m"), byServer, "must be less than or equal to cpu limit"},
		{controller, "remove a limit", limit(web, "app", "null"), byServer, "resource limits cannot be removed"},
		{controller, "change an image through pods/resize", image, byNobody, ""},
		{controller, "forge the note of who set a limit", note(forged), byNobody, ""},
		{controller, "wipe that note", note(`[{}]`), byNobody, ""},

		{controller, "change an image", edit(web, `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`), byRBAC, "cannot patch resource"},
		{controller, "label a pod", edit(web, `{"metadata":{"labels":{"x":"y"}}}`), byRBAC, "cannot patch resource"},
		{controller, "evict a pod", evict(web), byRBAC, "pods/eviction"},
		{controller, "run a pod", run("shop", "default"), byRBAC, "cannot create resource"},
		{controller, "delete a pod", may("delete", "pods", "", "shop"), byRBAC, ""},
		{controller, "run a command in a pod", may("create", "pods", "exec", "shop"), byRBAC, ""},
		{controller, "switch a namespace to enforce", label("attic", "enforce"), byRBAC, "cannot patch resource"},
		{controller, "read Secrets", may("get", "secrets", "", system), byRBAC, ""},
		{controller, "change a node", may("patch", "nodes", "", ""), byRBAC, ""},
		{controller, "take down a policy", may("delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", ""), byRBAC, ""},
		{controller, "pass for an agent", impersonated(agentAccount), byRBAC, ""},
	}
}

// ofControllerElsewhere is about namespaces and pods that are not to be resized.
func ofControllerElsewhere() []attempt {
	const only = "takes back there what it set itself"
	return []attempt{
		{controller, "take back its own limit where the mode is off", limit("attic/moved", "app", "200m"), "", ""},
		{controller, "take back its own limit of a sidecar", limit("attic/moved-sidecar", "proxy", "100m"), "", ""},
		{controller, "take back its own limit where the mode is recommend", limit("window/moved", "app", "200m"), "", ""},
		{controller, "take back its own limit where the mode is restore", limit("home/moved", "app", "200m"), "", ""},
		{controller, "take back its own limit where the mode cannot be read", limit("typo/moved", "app", "200m"), "", ""},
		{controller, "take back its own limit in a namespace without a label", limit("plain/moved", "app", "200m"), "", ""},
		{controller, "take back its own limit in kube-system", limit("kube-system/moved", "app", "200m"), "", ""},
		{controller, "take back its own limit in a pod that is out", limit("shop/moved-and-out", "app", "200m"), "", ""},
		{controller, "take back a limit where the note of who wrote it is gone", limit("attic/wiped", "app", "200m"), "", ""},

		{controller, "resize where the mode is off", limit("attic/web", "app", "300m"), resizes, only},
		{controller, "resize where it is recommend", limit("window/web", "app", "300m"), resizes, only},
		{controller, "resize where it is restore", limit("home/web", "app", "300m"), resizes, only},
		{controller, "resize where it cannot be read", limit("typo/web", "app", "300m"), resizes, only},
		{controller, "resize in a namespace without a label, unless the installation enforces", limit("plain/web", "app", "300m"), resizes, only},
		{controller, "resize in kube-system, whatever its label says", limit("kube-system/web", "app", "300m"), resizes, only},
		{controller, "resize in mbcas-system, whatever its label says", limit(system+"/web", "app", "300m"), resizes, only},
		{controller, "resize a pod that is out by its label", limit("shop/out-by-label", "app", "300m"), resizes, "mbcas.io/managed=false"},
		{controller, "resize a pod that is out by its annotation", limit("shop/out-by-annotation", "app", "300m"), resizes, "mbcas.io/managed=false"},
		{controller, "change where the mode is off a container beside one that it had changed", limit("attic/moved", "free", "300m"), resizes, only},
		{controller, "change a sidecar beside one", limit("attic/moved", "proxy", "300m"), resizes, only},
		{controller, "take back a limit that its owner has changed since", limit("attic/taken", "app", "200m"), resizes, only},
		{controller, "change a limit to which it only laid claim", limit("attic/claimed", "app", "300m"), resizes, only},
		{controller, "change a limit, and forge at once the note of who set it", noted("attic/web", forged), resizes, only},
		{controller, "change a new pod whose note is gone", limit("attic/new", "app", "300m"), resizes, only},
	}
}

func ofControllerRecords() []attempt {
	const web, moved = "shop/web", "shop/moved"
	return []attempt{
		{controller, "create the PodAllocation of a pod", allocate(moved, nil), "", ""},
		{controller, "write a status", status(web, `"phase":"Applied","reason":"Settled"`), "", ""},
		{controller, "delete a PodAllocation", deallocate(web), "", ""},
		{controller, "write down declared limits", store(system, "mbcas-declared-node-1"), "", ""},
		{controller, "pause", store(system, "mbcas"), "", ""},
		{controller, "renew its Lease", renew("mbcas-controller"), "", ""},
		{controller, "say what it did", event(web, us), "", ""},
		{controller, "say that it leads", oldEvent(system, "mbcas-controller-7f9c_1b2e"), "", ""},

		{controller, "create a PodAllocation without an owner", allocate(moved, func(pa *v1alpha1.PodAllocation) { pa.OwnerReferences = nil }), records, "one owner"},
		{controller, "create one with two", allocate(moved, func(pa *v1alpha1.PodAllocation) {
			pa.OwnerReferences = append(pa.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "x"})
		}), records, "one owner"},
		{controller, "create one for a pod of another uid", allocate(moved, owned(func(o *metav1.OwnerReference) { o.UID = "x" })), records, "one owner"},
		{controller, "create one for a pod of another name", allocate(moved, owned(func(o *metav1.OwnerReference) { o.Name = "web" })), records, "one owner"},
		{controller, "create one for what is no pod", allocate(moved, owned(func(o *metav1.OwnerReference) { o.Kind = "Node" })), records, "one owner"},
		{controller, "create one for a pod of another API", allocate(moved, owned(func(o *metav1.OwnerReference) { o.APIVersion = "x.io/v1" })), records, "one owner"},
		{controller, "create one with a decision", allocate(moved, func(pa *v1alpha1.PodAllocation) {
			pa.Spec.DesiredCPULimit, pa.Spec.Containers = milli(500), []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 500}}
			pa.Spec.Decision = &v1alpha1.Decision{Price: 0.000, Ceiling: 500, BoundBy: v1alpha1.BoundByNothing, ObservedAt: metav1.NowMicro()}
		}), records, "decides nothing"},
		{controller, "write another certificate of the API server for its own namespace", store(system, "kube-root-ca.crt"), maps, "ConfigMaps mbcas, mbcas-settings and mbcas-declared-*"},
		{controller, "beat for a node", beat("mbcas-agent-node-1"), leases, "Lease mbcas-controller"},
		{controller, "take another Lease", beat("mbcas-controller-2"), leases, "Lease mbcas-controller"},
		{controller, "send an event in the kubelet's name", event(web, "kubelet"), events, "signs its events"},

		{controller, "create a PodAllocation under a name that is not the pod's uid", allocate(moved, func(pa *v1alpha1.PodAllocation) { pa.Name = "web" }), bySchema, "must equal spec.podRef.uid"},
		{controller, "record a declared limit of 0", status(web, `"declaredLimits":[{"name":"app","cpuLimit":"0m"}]`), bySchema, "status.declaredLimits"},
		{controller, "record a limit that is no figure", status(web, `"declaredLimits":[{"name":"app","cpuLimit":"1.5"}]`), bySchema, "status.declaredLimits"},
		{controller, "record the limit of one container twice", status(web, `"declaredLimits":[{"name":"app","cpuLimit":"10m"},{"name":"app","cpuLimit":"20m"}]`), bySchema, "Duplicate"},
		{controller, "record 65 applied limits", status(web, `"appliedLimits":[`+many(65)+`]`), bySchema, "must have at most 64 items"},
		{controller, "set terms out of bounds", status(web, `"constraints":{"coordinationPercent":1000}`), bySchema, "status.constraints.coordinationPercent"},
		{controller, "invent a phase", status(web, `"phase":"Done"`), bySchema, "status.phase"},

		{controller, "decide", decide(web), byRBAC, "cannot patch resource"},
		{controller, "renew an agent's Lease", renew("mbcas-agent-node-2"), byRBAC, "cannot update resource"},
		{controller, "send an event of the old kind elsewhere", oldEvent("shop", "kubelet"), byRBAC, "cannot create resource"},
		{controller, "write a ConfigMap elsewhere", store("shop", "mbcas"), byRBAC, "cannot create resource"},
	}
}

func ofKubelets() []attempt {
	return []attempt{
		{kubelet, "get a token for the agent on its node", token(agentAccount, system+"/agent-1"), "", ""},
		{kubelet, "get a token for the agent on node-2", token(agentAccount, system+"/agent-2"), byServer, "scheduled on a different node"},
		{kubelet, "get a token for the controller on node-2", token(controllerAccount, system+"/controller"), byRBAC, "no relationship found"},
		{kubelet, "get a token for no pod", token(agentAccount, ""), byServer, "not bound to a pod"},
		{kubelet, "decide for a pod itself", decide("shop/web"), byRBAC, "cannot patch resource"},
		{kubelet, "beat for the agent", beat("mbcas-agent-node-1"), byRBAC, "kube-node-lease"},
		{kubelet, "resize a pod of its node", limit("shop/web", "app", "300m"), byRBAC, "pods/resize"},
	}
}

func ofTenants() []attempt {
	const web = "shop/web"
	var all []attempt
	for _, who := range []string{editor, admin} {
		all = append(all,
			attempt{who, "read a PodAllocation", may("get", "podallocations.allocation.mbcas.io", "", "shop"), "", ""},
			attempt{who, "take a pod out", edit(web, `{"metadata":{"labels":{"mbcas.io/managed":"false"}}}`), "", ""},
			attempt{who, "create a PodAllocation", allocate("shop/moved", nil), byRBAC, "cannot create resource"},
			attempt{who, "decide", decide(web), byRBAC, "cannot patch resource"},
			attempt{who, "delete a PodAllocation", deallocate(web), byRBAC, "cannot delete resource"},
			attempt{who, "resize a pod", limit(web, "app", "300m"), byRBAC, "pods/resize"},
			attempt{who, "set the mode of its namespace", label("shop", "restore"), byRBAC, "cannot patch resource"},
			attempt{who, "pause everything", store(system, "mbcas"), byRBAC, "cannot create resource"},
			attempt{who, "run a pod as an agent", run(system, "mbcas-agent"), byRBAC, "cannot create resource"},
			attempt{who, "get a token of the controller", token(controllerAccount, ""), byRBAC, "serviceaccounts/token"},
			attempt{who, "pass for the controller", impersonated(controllerAccount), byRBAC, ""},
		)
	}
	return append(all,
		attempt{owner, "label a PodAllocation", write(web, `{"metadata":{"labels":{"x":"y"}}}`), "", ""},
		attempt{owner, "delete a PodAllocation", deallocate(web), "", ""},
		attempt{owner, "resize its own pod", through(web, `"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"}}}]`, "kubectl"), "", ""},
		attempt{owner, "create a PodAllocation", allocate("shop/moved", nil), mbcasOnly, "written by MBCAS alone"},
		attempt{owner, "decide", decide(web), mbcasOnly, "written by MBCAS alone"},
		attempt{owner, "write a status", status(web, `"phase":"NotApplied"`), mbcasOnly, "written by MBCAS alone"},
		attempt{owner, "give a PodAllocation another owner", write(web, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`), mbcasOnly, "belongs to its pod"},
		attempt{owner, "get a token of the controller", token(controllerAccount, ""), byRBAC, "serviceaccounts/token"},
		attempt{owner, "pass for an agent", impersonated(agentAccount), byRBAC, ""},
		attempt{namesake, "create a PodAllocation", allocate("shop/moved", nil), mbcasOnly, "written by MBCAS alone"},
		attempt{namesake, "write a status", status(web, `"phase":"NotApplied"`), mbcasOnly, "written by MBCAS alone"},
		attempt{collector, "leave a PodAllocation of a deleted pod behind", write(web, `{"metadata":{"ownerReferences":null}}`), "", ""},
		attempt{collector, "delete a PodAllocation", deallocate(web), "", ""},
		attempt{masters, "mend a status", status(web, `"phase":"NotApplied"`), "", ""},
		attempt{masters, "mend a decision", decide(web), "", ""},
	)
}

// ofSignals is about DemandSignals: who may change workloads writes them, and the controller their status.
func ofSignals() []attempt {
	const percent = `"demandPercent":200`
	all := []attempt{
		{controller, "say what became of a DemandSignal", claim(percent), "", ""},
		{controller, "claim more for a DemandSignal than one may ask for", claim(`"demandPercent":2000`), bySchema, "status.demandPercent"},
		{controller, "change a DemandSignal", askElse(`{"spec":{"maxPercent":1000}}`), byRBAC, "cannot patch resource"},
		{controller, "write a DemandSignal", ask(nil), byRBAC, "cannot create resource"},
		{agent1, "write a DemandSignal", ask(nil), byRBAC, "cannot create resource"},
		{agent1, "change a DemandSignal", askElse(`{"spec":{"maxPercent":1000}}`), byRBAC, "cannot patch resource"},
		{agent1, "write the status of a DemandSignal", claim(percent), byRBAC, "demandsignals/status"},
		{editor, "ask for more than ten times its demand", ask(func(d *v1alpha1.DemandSignal) { d.Spec.MaxPercent = 1001 }), bySchema, "spec.maxPercent"},
		{editor, "look smaller than it is", ask(func(d *v1alpha1.DemandSignal) { d.Spec.MinPercent = 50 }), bySchema, "spec.minPercent"},
		{editor, "want a metric to be 0", askElse(`{"spec":{"metric":{"external":{"target":{"value":"0"}}}}}`), bySchema, "must be more than 0"},
		{pluginUser, "read DemandSignals", may("list", "demandsignals.allocation.mbcas.io", "", ""), "", ""},
		{pluginUser, "write a DemandSignal", ask(nil), byRBAC, "cannot create resource"},
	}
	for _, who := range []string{editor, admin} {
		all = append(all,
			attempt{who, "write a DemandSignal", ask(nil), "", ""},
			attempt{who, "change a DemandSignal", askElse(`{"spec":{"maxPercent":300}}`), "", ""},
			attempt{who, "write the status of a DemandSignal", claim(percent), byRBAC, "demandsignals/status"},
		)
	}
	return all
}

func ofPluginUsers() []attempt {
	return []attempt{
		{pluginUser, "ask an agent", may("get", "pods", "proxy", system), "", ""},
		{pluginUser, "resize where it may", through("shop/web", `"containers":[{"name":"app","resources":{"limits":{"cpu":"310m"}}}]`, "kubectl-mbcas"), "", ""},
		{pluginUser, "ask other pods", may("get", "pods", "proxy", "shop"), byRBAC, ""},
		{pluginUser, "send to an agent", may("create", "pods", "proxy", system), byRBAC, ""},
		{pluginUser, "resize where it may not", limit("kube-system/web", "app", "310m"), byRBAC, "pods/resize"},
		{pluginUser, "decide", decide("shop/web"), byRBAC, "cannot patch resource"},
		{pluginUser, "pause", store(system, "mbcas"), byRBAC, "cannot create resource"},
		{pluginUser, "read Secrets", may("get", "secrets", "", system), byRBAC, ""},
	}
}

// ofClusterAdmins is what our policies still refuse when RBAC refuses nothing any more.
func ofClusterAdmins() []attempt {
	const web, moved = "shop/web", "shop/moved"
	return []attempt{
		{strongAgent, "create a PodAllocation", allocate(moved, nil), agents, "creates no PodAllocation"},
		{strongAgent, "delete a PodAllocation", deallocate(web), agents, "deletes no PodAllocation"},
		{strongAgent, "write a status", status(web, `"phase":"NotApplied"`), agents, "writes no status"},
		{strongAgent, "decide for a pod of node-2", decide("shop/other"), agents, "of that node only"},
		{strongAgent, "delete an agent's Lease", lapse("mbcas-agent-node-2"), leases, "deletes no Lease"},
		{strongAgent, "delete the controllers' Lease", lapse("mbcas-controller"), leases, "deletes no Lease"},
		{strongAgent, "beat in another namespace", beatIn("kube-node-lease", "mbcas-agent-node-1"), leases, "of mbcas-system only"},
		{strongControl, "run a pod", run("shop", "default"), pods, "through pods/resize only"},
		{strongControl, "change an image", edit(web, `{"spec":{"containers":[{"name":"app","image":"evil"}]}}`), pods, "through pods/resize only"},
		{strongControl, "label a pod", edit(web, `{"metadata":{"labels":{"x":"y"}}}`), pods, "through pods/resize only"},
		{strongControl, "delete a pod", destroy(web), pods, "through pods/resize only"},
		{strongControl, "evict a pod", evict(web), pods, "through pods/resize only"},
		{strongControl, "run a command in a pod", connect(web, "exec"), pods, "through pods/resize only"},
		{strongControl, "attach to a pod", connect(web, "attach"), pods, "through pods/resize only"},
		{strongControl, "reach a port of a pod", connect(web, "portforward"), pods, "through pods/resize only"},
		{strongControl, "send to a pod", connect(web, "proxy"), pods, "through pods/resize only"},
		{strongControl, "decide", decide(web), records, "no more than the status"},
		{strongControl, "label a PodAllocation", write(web, `{"metadata":{"labels":{"x":"y"}}}`), records, "no more than the status"},
		{strongControl, "write a ConfigMap elsewhere", store("shop", "mbcas"), maps, "of mbcas-system only"},
		{strongControl, "beat in another namespace", beatIn("kube-node-lease", "mbcas-controller"), leases, "of mbcas-system only"},
		{strongControl, "renew an agent's Lease", renew("mbcas-agent-node-2"), leases, "Lease mbcas-controller"},
		{strongControl, "send an event of the old kind in the kubelet's name", oldEvent("shop", "kubelet"), events, "signs its events"},
	}
}
