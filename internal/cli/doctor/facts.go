// Package doctor checks a cluster, the installation of MBCAS, its nodes and namespaces. Gather reads facts; Judge turns them
// into findings and is pure.
package doctor

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// Facts is everything that doctor has seen. What could not be read is nil or empty, and its error is in
// Unread under the name of the thing.
type Facts struct {
	System  string
	Version string
	Served  podresize.Answer

	UserPermissions       []Permission // of the person who asks
	ControllerPermissions []Permission // of the controller's service account

	State       restore.State // of the installation, as the switch says
	CRD         *apiextensionsv1.CustomResourceDefinition
	SignalCRD   *apiextensionsv1.CustomResourceDefinition
	Signals     []v1alpha1.DemandSignal
	Controller  *appsv1.Deployment
	Agent       *appsv1.DaemonSet
	SystemPods  []corev1.Pod
	Leases      []coordinationv1.Lease
	Nodes       []corev1.Node
	Namespaces  []corev1.Namespace
	Pods        []corev1.Pod
	Allocations map[types.UID]*v1alpha1.PodAllocation
	Markets     map[string]snapshot.Market  // by node, of the agents that answered
	RoundErrors map[string]error            // by node, of those that did not
	Objects     snapshot.ObjectsByNamespace // what bends the decisions about pods, by namespace

	Unread map[string]error
}

// Gather asks the API server everything, one question after the other; no answer stops it, but if nobody
// answers at all.
func Gather(ctx context.Context, a *cluster.Access) *Facts {
	c := &Facts{System: a.System, Objects: snapshot.ObjectsByNamespace{}, Unread: map[string]error{}}
	version, err := a.Discovery.ServerVersionWithContext(ctx)
	if err != nil {
		c.note("version", err)
		return c
	}
	c.Version = version.GitVersion
	c.Served, err = podresize.Served(ctx, a.Discovery)
	c.note("resize", err)
	c.readInstall(ctx, a)
	c.readObjects(ctx, a)
	c.readSurroundings(ctx, a.Client)
	c.readSignals(ctx, a)
	c.readRights(ctx, a.Client)
	c.note("rounds", askAgents(ctx, a, c))
	return c
}

func (c *Facts) note(what string, err error) {
	if err != nil {
		c.Unread[what] = err
	}
}

func (c *Facts) readInstall(ctx context.Context, a *cluster.Access) {
	var err error
	c.CRD, err = cluster.Get(ctx, a.Client, "CRD", &apiextensionsv1.CustomResourceDefinition{}, "", cluster.CRDName)
	c.note("crd", err)
	c.Controller, err = cluster.Get(ctx, a.Client, "deployment", &appsv1.Deployment{}, a.System, cluster.ControllerName)
	c.note("controller", err)
	c.Agent, err = cluster.Get(ctx, a.Client, "daemonset", &appsv1.DaemonSet{}, a.System, cluster.AgentName)
	c.note("agent", err)
	c.State, err = restore.ReadState(ctx, a.Client, a.System)
	c.note("switch", err)
}

func (c *Facts) readRights(ctx context.Context, api client.Client) {
	for _, p := range yourPermissions {
		c.note("permissions", p.ask(ctx, api, ""))
		c.UserPermissions = append(c.UserPermissions, p)
	}
	if c.Controller == nil {
		return
	}
	needed := slices.Clone(accountPermissions)
	if slices.ContainsFunc(slices.Collect(maps.Values(c.Objects)), func(n *snapshot.NamespaceObjects) bool { return len(n.VPAs) > 0 }) {
		needed = append(needed, vpaPermissions...)
	}
	needed = append(needed, signalPermissions(c.Signals)...)
	for _, p := range needed {
		c.note("account", p.ask(ctx, api, accountName(c.Controller)))
		c.ControllerPermissions = append(c.ControllerPermissions, p)
	}
}

func (c *Facts) readObjects(ctx context.Context, a *cluster.Access) {
	list := func(what string, into client.ObjectList, options ...client.ListOption) {
		c.note(what, a.Client.List(ctx, into, options...))
	}
	var pods corev1.PodList
	var leases coordinationv1.LeaseList
	var nodes corev1.NodeList
	var namespaces corev1.NamespaceList
	list("pods", &pods)
	list("leases", &leases, client.InNamespace(a.System))
	list("nodes", &nodes)
	list("namespaces", &namespaces)
	c.Pods, c.Leases, c.Nodes, c.Namespaces = pods.Items, leases.Items, nodes.Items, namespaces.Items
	for _, p := range c.Pods {
		if p.Namespace == a.System {
			c.SystemPods = append(c.SystemPods, p)
		}
	}
	var err error
	if c.Allocations, err = cluster.ReadAllocations(ctx, a.Client, ""); err != nil && !cluster.NotInstalled(err) {
		c.note("allocations", err)
	}
}

// readSurroundings reads what bends the decisions about pods, in all namespaces.
func (c *Facts) readSurroundings(ctx context.Context, api client.Client) {
	var ranges corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	var budgets policyv1.PodDisruptionBudgetList
	c.note("limitranges", api.List(ctx, &ranges))
	c.note("resourcequotas", api.List(ctx, &quotas))
	c.note("horizontalpodautoscalers", api.List(ctx, &hpas))
	c.note("poddisruptionbudgets", api.List(ctx, &budgets))
	c.note("verticalpodautoscalers", cluster.AddVPAs(ctx, api, c.Objects, ""))
	for _, l := range ranges.Items {
		n := c.Objects.Get(l.Namespace)
		n.LimitRanges = append(n.LimitRanges, l)
	}
	for _, q := range quotas.Items {
		n := c.Objects.Get(q.Namespace)
		n.Quotas = append(n.Quotas, q)
	}
	for _, b := range budgets.Items {
		n := c.Objects.Get(b.Namespace)
		n.Budgets = append(n.Budgets, b)
	}
	for _, h := range hpas.Items {
		n := c.Objects.Get(h.Namespace)
		n.HPAs = append(n.HPAs, h)
		if looksAtCPU(&h) {
			cluster.ResolveTarget(ctx, api, n, h.Namespace, kube.HPATarget(&h))
		}
	}
}

// looksAtCPU says whether the autoscaler goes by the CPU use of pods.
func looksAtCPU(h *autoscalingv2.HorizontalPodAutoscaler) bool {
	for _, m := range h.Spec.Metrics {
		if m.Resource != nil && m.Resource.Name == corev1.ResourceCPU || m.ContainerResource != nil && m.ContainerResource.Name == corev1.ResourceCPU {
			return true
		}
	}
	return false
}

// askAgents asks every agent for its last round, as far as they are few enough. An error means that none
// can be asked.
func askAgents(ctx context.Context, a *cluster.Access, c *Facts) error {
	c.Markets, c.RoundErrors = map[string]snapshot.Market{}, map[string]error{}
	if a.Round == nil || len(c.Nodes) > cluster.MaxRoundNodes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.RoundTimeout)
	defer cancel()
	for _, n := range c.Nodes {
		agent := cluster.AgentOn(c.SystemPods, n.Name)
		if agent == nil {
			continue
		}
		market, _, err := cluster.ReadRound(ctx, a, agent, n.Name)
		switch {
		case apierrors.IsForbidden(err):
			return err
		case err != nil:
			c.RoundErrors[n.Name] = err
		default:
			c.Markets[n.Name] = market
		}
	}
	return nil
}
