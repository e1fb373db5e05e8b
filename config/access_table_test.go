package config_test

import (
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// accessTable is what each user may do and what is refused.
func accessTable() []request {
	return slices.Concat(
		ofAgents(), ofController(), ofControllerElsewhere(), ofControllerRecords(), ofKubelets(), refusedByRBAC(),
		ofTenants(), ofDemandSignals(), ofElevatedAccounts(),
	)
}

// rows are actions of the same users with the same end.
type rows []struct {
	action string
	send   send
	says   string
}

func (r rows) of(by string, users ...string) (all []request) {
	for _, user := range users {
		for _, row := range r {
			all = append(all, request{user, row.action, row.send, by, row.says})
		}
	}
	return all
}

func (r rows) allowed(users ...string) []request { return r.of("", users...) }

const (
	web     = "shop/web"
	other   = "shop/other" // on node-2
	resized = "shop/resized"

	aLabel         = `{"metadata":{"labels":{"x":"y"}}}`
	withoutOwner   = `{"metadata":{"ownerReferences":null}}`
	withOtherOwner = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`
	withDecision   = `{"spec":{"desiredCPULimit":null,"containers":null,"decision":null}}`
)

func ofAgents() []request {
	const own = "the Lease mbcas-agent-node-1 of mbcas-system only"
	mine, ofNode := allocation(web), "of that node only"
	const nothingMore = "adds nothing to its Lease but"
	more := func(change func(*coordinationv1.Lease)) send { return renewWith("mbcas-agent-node-2", change) }
	market := func(size int) map[string]string { return map[string]string{kube.MarketKey: strings.Repeat("x", size)} }
	return slices.Concat(
		rows{
			{"decide for a pod of its node", decide(web), ""},
			{"withdraw a decision", patch(mine, withDecision), ""},
			{"create its Lease", create(lease(system, "mbcas-agent-node-1")), ""},
		}.allowed(agent1),
		rows{{"say what its market is", create(says(market(512), nil)), ""}}.allowed(agent1),
		rows{
			{"say too much of its market", create(says(market(513), nil)), nothingMore},
			{"annotate its Lease", create(says(map[string]string{"x": "y"}, nil)), nothingMore},
			{"label its Lease", create(says(nil, map[string]string{"x": "y"})), nothingMore},
		}.of(leases, agent1),
		rows{
			{"add an empty annotation to its Lease", more(func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"x": ""} }), nothingMore},
			{"add an empty label to its Lease", more(func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": ""} }), nothingMore},
			{"add a finalizer to its Lease", more(func(l *coordinationv1.Lease) { l.Finalizers = []string{"example.com/x"} }), nothingMore},
		}.of(leases, agent2),
		rows{{"decide for a pod of its node", decide(other), ""}}.allowed(agent2),
		rows{
			{"decide for a pod of node-2", decide(other), ofNode},
			{"label a PodAllocation", patch(mine, aLabel), "no metadata"},
			{"annotate it", patch(mine, `{"metadata":{"annotations":{"x":"y"}}}`), "no metadata"},
			{"prevent its deletion", patch(mine, `{"metadata":{"finalizers":["x.io/y"]}}`), "no metadata"},
			{"remove its owner", patch(mine, withoutOwner), "no metadata"},
		}.of(agents, agent1),
		rows{{"decide for a pod of node-1", decide(web), ofNode}}.of(agents, agent2),
		rows{
			{"renew the Lease of the agent of node-2", renew("mbcas-agent-node-2"), own},
			{"renew the controller's Lease", renew("mbcas-controller"), own},
		}.of(leases, agent1),
		rows{{"create its Lease", create(lease(system, kube.AgentLease(longNode))), ""}}.allowed(longAgent),
		rows{{"renew the Lease of the agent of node-2", renew("mbcas-agent-node-2"), "of mbcas-system only"}}.of(leases, longAgent),
		rows{
			{"write a status beside its decision", patchBeside(web, `{"status":{"phase":"Applied","reason":"Mine"}}`), ""},
		}.of(byNothing, agent1),
		rows{{"decide for a pod", decide(web), "must name its node"}}.of(agents, unboundAgent),
		rows{
			{"create the Lease of a node", create(lease(system, "mbcas-agent-node-1")), "of mbcas-system only"},
		}.of(leases, unboundAgent),
	)
}

func ofController() []request {
	two := containers("app", `"limits":{"cpu":"1"}`) + "," + containers("proxy", `"limits":{"cpu":"1"}`)
	return slices.Concat(
		rows{
			{"raise a CPU limit", limit(web, "app", "4"), ""},
			{"lower a CPU limit", limit(web, "app", "110m"), ""},
			{"raise a CPU limit of a sidecar", limit(web, "proxy", "300m"), ""},
			{"change two at once", resizeAs(manager, web, two), ""},
			{"change 64 at once", resizeAll, ""},
		}.allowed(controller),
		rows{
			{"change a CPU request", resources(web, "app", `"requests":{"cpu":"50m"}`), "changes no request"},
			{"change a CPU request of a sidecar", resources(web, "proxy", `"requests":{"cpu":"20m"}`), "changes no request"},
			{"change a memory request", resources(web, "app", `"requests":{"memory":"20Mi"}`), "changes no request"},
			{"change a memory limit", resources(web, "app", `"limits":{"memory":"200Mi"}`), "no limit but that of CPU"},
			{"add a limit to a container without one", limit(web, "side", "300m"), "adds none"},
			{"raise a limit of 0", limit(web, "open", "300m"), "no limit to a container without one"},
			{"set a limit of 0, which is none", limit(web, "free", "0"), "between 1m and 99999999m"},
			{"set a limit of 100000 cores", limit(web, "app", "100000"), "between 1m and 99999999m"},
			{"change pod-level resources", resizeAs(manager, "shop/whole", `"resources":{"limits":{"cpu":"5"}}`), "pod-level resources"},
			{"restart a container by changing its limit", limit(web, "restarts", "200m"), "restarts the container"},
			{"change an init container that runs to completion", limit(web, "setup", "200m"), "runs to completion"},
			{
				"change a limit under another name",
				resizeAs("kubectl-edit", web, containers("app", `"limits":{"cpu":"300m"}`)), "under its own name",
			},
			{"change a limit by server-side apply", apply(web, "300m"), "under its own name"},
		}.of(resizes, controller),
		rows{
			{"lower a limit below its request", limit(web, "app", "50m"), "must be less than or equal to cpu limit"},
			{"remove a limit", limit(web, "app", "null"), "resource limits cannot be removed"},
		}.of(byServer, controller),
		rows{
			{"change an image through pods/resize", resizeImage(web), ""},
			{"forge managedFields", writeFields(forgedFields), ""},
			{"remove managedFields", writeFields(`[{}]`), ""},
		}.of(byNothing, controller),
	)
}

// ofControllerElsewhere is about namespaces and pods that are not to be resized.
func ofControllerElsewhere() []request {
	const only = "takes back there what it set itself"
	return slices.Concat(
		rows{
			{"restore its own limit where the mode is off", limit("attic/resized", "app", "200m"), ""},
			{"restore its own limit of a sidecar", limit("attic/resized-sidecar", "proxy", "100m"), ""},
			{"restore its own limit where the mode is recommend", limit("window/resized", "app", "200m"), ""},
			{"restore its own limit where the mode is restore", limit("home/resized", "app", "200m"), ""},
			{"restore its own limit where the mode is invalid", limit("typo/resized", "app", "200m"), ""},
			{"restore its own limit in a namespace without a label", limit("plain/resized", "app", "200m"), ""},
			{"restore its own limit in kube-system", limit("kube-system/resized", "app", "200m"), ""},
			{"restore its own limit in a pod that is opted out", limit("shop/resized-and-out", "app", "200m"), ""},
			{"restore a limit where managedFields are gone", limit("attic/wiped", "app", "200m"), ""},
		}.allowed(controller),
		rows{
			{"resize where the mode is off", limit("attic/web", "app", "300m"), only},
			{"resize where it is recommend", limit("window/web", "app", "300m"), only},
			{"resize where it is restore", limit("home/web", "app", "300m"), only},
			{"resize where it is invalid", limit("typo/web", "app", "300m"), only},
			{"resize in a namespace without a label, unless the installation enforces", limit("plain/web", "app", "300m"), only},
			{"resize in kube-system, whatever its label says", limit("kube-system/web", "app", "300m"), only},
			{"resize in mbcas-system, whatever its label says", limit(system+"/web", "app", "300m"), only},
			{"resize a pod that is opted out by label", limit("shop/out-by-label", "app", "300m"), "mbcas.io/managed=false"},
			{"resize a pod that is opted out by annotation", limit("shop/out-by-annotation", "app", "300m"), "mbcas.io/managed=false"},
			{"change, where the mode is off, a container beside one that it changed", limit("attic/resized", "free", "300m"), only},
			{"change a sidecar beside one", limit("attic/resized", "proxy", "300m"), only},
			{"restore a limit that its owner has changed since", limit("attic/changed", "app", "200m"), only},
			{"change a limit that it applied without changing it", limit("attic/claimed", "app", "300m"), only},
			{"change a limit and forge managedFields at once", writeFieldsAndLimit("attic/web", forgedFields), only},
			{"change a new pod whose managedFields are gone", limit("attic/new", "app", "300m"), only},
		}.of(resizes, controller),
	)
}

func ofControllerRecords() []request {
	ownedBy := func(edit func(*metav1.OwnerReference)) send {
		return create(newAllocation(resized, func(pa *v1alpha1.PodAllocation) { edit(&pa.OwnerReferences[0]) }))
	}
	ofNode := func(edit func(*metav1.OwnerReference)) send { return create(nodeAllocation("node-2", edit)) }
	half := cpu.Milli(500)
	return slices.Concat(
		rows{
			{"create the PodAllocation of a pod", create(newAllocation(resized, nil)), ""},
			{"write a status", patchStatus(allocation(web), `"phase":"Applied","reason":"Settled"`), ""},
			{"delete a PodAllocation", remove(allocation(web)), ""},
			{"create the NodeAllocation of a node", create(nodeAllocation("node-2", nil)), ""},
			{"constrain a pod", patch(nodeAllocation("node-1", nil), constrain), ""},
			{"record declared limits", create(configMap(system, "mbcas-declared-node-1")), ""},
			{"pause", create(configMap(system, "mbcas")), ""},
			{"renew its Lease", renew("mbcas-controller"), ""},
			{"create the Lease of a replica", create(lease(system, "mbcas-controller-7f9c-x")), ""},
			{"renew the Lease of a replica", renew("mbcas-controller-7f9c-q"), ""},
			{"delete the Lease of a replica", remove(lease(system, "mbcas-controller-7f9c-q")), ""},
			{"send an event about a pod", create(event(web, manager)), ""},
			{"send an event about its leader", create(coreEvent(system, "mbcas-controller-7f9c_1b2e")), ""},
		}.allowed(controller),
		rows{
			{"create a PodAllocation without an owner", create(newAllocation(resized, func(pa *v1alpha1.PodAllocation) {
				pa.OwnerReferences = nil
			})), "one owner"},
			{"create one with two", create(newAllocation(resized, func(pa *v1alpha1.PodAllocation) {
				second := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "x"}
				pa.OwnerReferences = append(pa.OwnerReferences, second)
			})), "one owner"},
			{"create one for a pod of another uid", ownedBy(func(o *metav1.OwnerReference) { o.UID = "x" }), "one owner"},
			{"create one for a pod of another name", ownedBy(func(o *metav1.OwnerReference) { o.Name = "web" }), "one owner"},
			{"create one for another kind", ownedBy(func(o *metav1.OwnerReference) { o.Kind = "Node" }), "one owner"},
			{"create one for a pod of another API", ownedBy(func(o *metav1.OwnerReference) { o.APIVersion = "x.io/v1" }), "one owner"},
			{"create one with a decision", create(newAllocation(resized, func(pa *v1alpha1.PodAllocation) {
				pa.Spec.DesiredCPULimit, pa.Spec.Containers = &half, []v1alpha1.ContainerLimit{{Name: "app", CPULimit: half}}
				pa.Spec.Decision = &v1alpha1.Decision{
					Ceiling: half, BoundBy: v1alpha1.BoundByNothing, ObservedAt: metav1.NowMicro(),
				}
			})), "decides nothing"},
		}.of(records, controller),
		rows{
			{"create a NodeAllocation without an owner", create(func(e *environment) client.Object {
				return &v1alpha1.NodeAllocation{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}
			}), "has one owner"},
			{"create one for another node", ofNode(func(o *metav1.OwnerReference) { o.Name = "node-1" }), "the node of its name"},
			{"create one for a pod", ofNode(func(o *metav1.OwnerReference) { o.Kind = "Pod" }), "the node of its name"},
			{"create one for a node of another API", ofNode(func(o *metav1.OwnerReference) { o.APIVersion = "x.io/v1" }), "the node of its name"},
		}.of(told, controller),
		rows{
			{
				"replace the certificate of the API server", create(configMap(system, "kube-root-ca.crt")),
				"ConfigMaps mbcas, mbcas-settings and mbcas-declared-*",
			},
		}.of(maps, controller),
		rows{
			{"create the Lease of an agent", create(lease(system, "mbcas-agent-node-1")), "Lease mbcas-controller"},
			{"create another Lease", create(lease(system, "mbcas-other")), "Lease mbcas-controller"},
			{"renew an agent's Lease", renew("mbcas-agent-node-2"), "Lease mbcas-controller"},
			{"delete an agent's Lease", remove(lease(system, "mbcas-agent-node-2")), "but those of the replicas"},
			{"delete its Lease", remove(lease(system, "mbcas-controller")), "but those of the replicas"},
		}.of(leases, controller),
		rows{{"send an event in the kubelet's name", create(event(web, "kubelet")), "signs its events"}}.of(events, controller),
	)
}

func ofKubelets() []request {
	return slices.Concat(
		rows{{"get a token for the agent on its node", token(agentAccount, system+"/agent-1"), ""}}.allowed(kubelet),
		rows{
			{"get a token for the agent on node-2", token(agentAccount, system+"/agent-2"), "scheduled on a different node"},
			{"get a token for no pod", token(agentAccount, ""), "not bound to a pod"},
		}.of(byServer, kubelet),
		rows{
			{"get a token for the controller on node-2", token(controllerAccount, system+"/controller"), "no relationship found"},
			{"create the agent's Lease", create(lease(system, "mbcas-agent-node-1")), "kube-node-lease"},
		}.of(byRBAC, kubelet),
	)
}

// refusedByRBAC is what several users have no role for.
func refusedByRBAC() []request {
	const createNo, patchNo = "cannot create resource", "cannot patch resource"
	pause := create(configMap(system, "mbcas"))
	return slices.Concat(
		rows{
			{"create a PodAllocation", create(newAllocation(resized, nil)), createNo},
			{"delete a PodAllocation", remove(allocation(web)), "cannot delete resource"},
			{"resize a pod", limit(web, "app", "300m"), "pods/resize"},
			{"pause everything", pause, createNo},
			{"write the status of a DemandSignal", patchStatus(demandSignal("latency"), `"demandPercent":200`), "demandsignals/status"},
		}.of(byRBAC, agent1, editor, admin),
		rows{{"decide", decide(web), patchNo}}.of(byRBAC, controller, kubelet, editor, admin, pluginUser),
		rows{{"constrain a pod", patch(nodeAllocation("node-1", nil), constrain), patchNo}}.of(byRBAC, agent1, editor, admin, pluginUser),
		rows{{"delete a NodeAllocation", remove(nodeAllocation("node-1", nil)), "cannot delete resource"}}.of(byRBAC, agent1, controller),
		rows{{"resize a pod of its node", limit(web, "app", "300m"), "pods/resize"}}.of(byRBAC, kubelet),
		rows{
			{"get a token of the controller", token(controllerAccount, ""), "serviceaccounts/token"},
			{"impersonate an account of MBCAS", may("impersonate", "serviceaccounts", system), ""},
		}.of(byRBAC, agent1, controller, editor, admin, owner),
		rows{
			{"change an image", changeImage(web), patchNo},
			{"label a pod", patch(pod(web), aLabel), patchNo},
			{"evict a pod", evict(web), "pods/eviction"},
			{"run a pod", create(newPod("shop", "default")), createNo},
			{"delete a pod", may("delete", "pods", "shop"), ""},
			{"run a command in a pod", may("create", "pods/exec", "shop"), ""},
			{"run commands through a kubelet", may("get", "nodes/proxy", ""), ""},
			{"switch a namespace to enforce", label("attic", "enforce"), patchNo},
			{"change a node", may("patch", "nodes", ""), ""},
			{"remove a policy", may("delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io", ""), ""},
			{"change a DemandSignal", patch(demandSignal("latency"), `{"spec":{"maxPercent":1000}}`), patchNo},
		}.of(byRBAC, agent1, controller),
		rows{
			{"read Secrets", may("get", "secrets", system), ""},
			{"write a DemandSignal", create(demandSignal("new")), createNo},
		}.of(byRBAC, agent1, controller, pluginUser),
		rows{
			{"write a status", patchStatus(allocation(web), `"phase":"Applied"`), "podallocations/status"},
			{"delete a Lease", remove(lease(system, "mbcas-controller")), "cannot delete resource"},
		}.of(byRBAC, agent1),
		rows{
			{"send an event of the core group elsewhere", create(coreEvent("shop", "kubelet")), createNo},
			{"write a ConfigMap elsewhere", create(configMap("shop", "mbcas")), createNo},
		}.of(byRBAC, controller),
		rows{
			{"set the mode of its namespace", label("shop", "restore"), patchNo},
			{"run a pod as an agent", create(newPod(system, "mbcas-agent")), createNo},
		}.of(byRBAC, editor, admin),
		rows{
			{"read from other pods", may("get", "pods/portforward", "shop"), ""},
			{"open a port of other pods", may("create", "pods/portforward", "shop"), ""},
			{"send to an agent's port in the cluster", may("create", "pods/proxy", system), ""},
			{"resize where it has no role", limit("kube-system/web", "app", "310m"), "pods/resize"},
			{"pause everything", pause, createNo},
		}.of(byRBAC, pluginUser),
	)
}

func ofTenants() []request {
	const alone = "written by MBCAS alone"
	return slices.Concat(
		rows{
			{"read a PodAllocation", may("get", "podallocations.allocation.mbcas.io", "shop"), ""},
			{"opt a pod out", patch(pod(web), `{"metadata":{"labels":{"mbcas.io/managed":"false"}}}`), ""},
		}.allowed(editor, admin),
		rows{
			{"label a PodAllocation", patch(allocation(web), aLabel), ""},
			{"delete a PodAllocation", remove(allocation(web)), ""},
			{"resize its own pod", resizeAs("kubectl", web, containers("app", `"limits":{"cpu":"300m"}`)), ""},
		}.allowed(owner),
		rows{
			{"create a PodAllocation", create(newAllocation(resized, nil)), alone},
			{"write a status", patchStatus(allocation(web), `"phase":"NotApplied"`), alone},
		}.of(mbcasOnly, owner, namesake),
		rows{
			{"decide", decide(web), alone},
			{"give a PodAllocation another owner", patch(allocation(web), withOtherOwner), "belongs to its pod"},
		}.of(mbcasOnly, owner),
		rows{
			{"leave a PodAllocation of a deleted pod behind", patch(allocation(web), withoutOwner), ""},
			{"delete a PodAllocation", remove(allocation(web)), ""},
		}.allowed(collector),
		rows{
			{"correct a status", patchStatus(allocation(web), `"phase":"NotApplied"`), ""},
			{"correct a decision", decide(web), ""},
			{"correct a NodeAllocation", patch(nodeAllocation("node-1", nil), constrain), ""},
		}.allowed(masters),
		rows{
			{"read from an agent by a websocket", may("get", "pods/portforward", system), ""},
			{"read from an agent by SPDY", may("create", "pods/portforward", system), ""},
			{"resize where it has the role", resizeAs("kubectl-mbcas", web, containers("app", `"limits":{"cpu":"310m"}`)), ""},
		}.allowed(pluginUser),
	)
}

// ofDemandSignals: users with the right to change workloads write DemandSignals, and the controller writes their status.
func ofDemandSignals() []request {
	return slices.Concat(
		rows{
			{"write the status of a DemandSignal", patchStatus(demandSignal("latency"), `"demandPercent":200`), ""},
		}.allowed(controller),
		rows{{"read DemandSignals", may("list", "demandsignals.allocation.mbcas.io", ""), ""}}.allowed(pluginUser),
		// A status that no client can read would keep the controller from reading any DemandSignal.
		rows{
			{"write the status of a DemandSignal", patchStatus(demandSignal("latency"), `"demandPercent":200`), "by MBCAS alone"},
		}.of(mbcasOnly, owner),
		rows{
			{"write a DemandSignal", create(demandSignal("new")), ""},
			{"change a DemandSignal", patch(demandSignal("latency"), `{"spec":{"maxPercent":300}}`), ""},
		}.allowed(editor, admin),
	)
}

// ofElevatedAccounts is what our policies still refuse where RBAC refuses nothing.
func ofElevatedAccounts() []request {
	const only = "through pods/resize only"
	return slices.Concat(
		rows{
			{"create a PodAllocation", create(newAllocation(resized, nil)), "creates no PodAllocation"},
			{"delete a PodAllocation", remove(allocation(web)), "deletes no PodAllocation"},
			{"write a status", patchStatus(allocation(web), `"phase":"NotApplied"`), "writes no status"},
			{"decide for a pod of node-2", decide(other), "of that node only"},
		}.of(agents, elevatedAgent),
		rows{
			{"create a NodeAllocation", create(nodeAllocation("node-2", nil)), "by the controller of MBCAS alone"},
			{"constrain a pod", patch(nodeAllocation("node-1", nil), constrain), "by the controller of MBCAS alone"},
			{"give a NodeAllocation another owner", patch(nodeAllocation("node-1", nil), withOtherOwner), "the node of its name"},
		}.of(told, elevatedAgent),
		rows{
			{"delete an agent's Lease", remove(lease(system, "mbcas-agent-node-2")), "deletes no Lease"},
			{"delete the controller's Lease", remove(lease(system, "mbcas-controller")), "deletes no Lease"},
			{"delete the Lease of a replica", remove(lease(system, "mbcas-controller-7f9c-q")), "deletes no Lease"},
			{"create the Lease of a replica", create(lease(system, "mbcas-controller-7f9c-x")), "of mbcas-system only"},
			{"create its Lease elsewhere", create(lease("shop", "mbcas-agent-node-1")), "of mbcas-system only"},
		}.of(leases, elevatedAgent),
		rows{
			{"run a pod", create(newPod("shop", "default")), only},
			{"change an image", changeImage(web), only},
			{"label a pod", patch(pod(web), aLabel), only},
			{"delete a pod", remove(pod(web)), only},
			{"evict a pod", evict(web), only},
			{"run a command in a pod", connect(web, "exec"), only},
			{"attach to a pod", connect(web, "attach"), only},
			{"open a port of a pod", connect(web, "portforward"), only},
			{"send to a pod", connect(web, "proxy"), only},
		}.of(pods, elevatedController),
		rows{
			{"decide", decide(web), "no more than the status"},
			{"label a PodAllocation", patch(allocation(web), aLabel), "no more than the status"},
		}.of(records, elevatedController),
		rows{
			{"write a ConfigMap elsewhere", create(configMap("shop", "mbcas")), "of mbcas-system only"},
		}.of(maps, elevatedController),
		rows{
			{"create its Lease elsewhere", create(lease("shop", "mbcas-controller")), "of mbcas-system only"},
			{"create the Lease of a replica elsewhere", create(lease("shop", "mbcas-controller-7f9c-x")), "of mbcas-system only"},
			{"delete the Lease of a replica elsewhere", remove(lease("shop", "mbcas-controller-7f9c-q")), "but those of the replicas"},
		}.of(leases, elevatedController),
		rows{
			{"send an event of the core group in the kubelet's name", create(coreEvent("shop", "kubelet")), "signs its events"},
		}.of(events, elevatedController),
	)
}
