package cli

import (
	"context"
	"fmt"
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
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// Checkup is everything that doctor has seen. What could not be read is nil or empty, and its error is in
// Unread under the name of the thing.
type Checkup struct {
	System  string
	Version string
	Served  podresize.Answer

	Yours   []Permission // of the person who asks
	Account []Permission // of the controller's service account

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
	Markets     map[string]Market // by node, of the agents that answered
	Silent      map[string]error  // by node, of those that did not
	Around      surroundings      // what bends the decisions about pods, by namespace

	Unread map[string]error
}

// examine asks the API server everything, one question after the other; no answer stops it, but if nobody
// answers at all.
func examine(ctx context.Context, a *Access) *Checkup {
	c := &Checkup{System: a.System, Around: surroundings{}, Unread: map[string]error{}}
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

func (c *Checkup) note(what string, err error) {
	if err != nil {
		c.Unread[what] = err
	}
}

func (c *Checkup) readInstall(ctx context.Context, a *Access) {
	var err error
	c.CRD, err = get(ctx, a.Client, "CRD", &apiextensionsv1.CustomResourceDefinition{}, "", crdName)
	c.note("crd", err)
	c.Controller, err = get(ctx, a.Client, "deployment", &appsv1.Deployment{}, a.System, controllerName)
	c.note("controller", err)
	c.Agent, err = get(ctx, a.Client, "daemonset", &appsv1.DaemonSet{}, a.System, agentName)
	c.note("agent", err)
	c.State, err = restore.ReadState(ctx, a.Client, a.System)
	c.note("switch", err)
}

func (c *Checkup) readRights(ctx context.Context, api client.Client) {
	for _, p := range yourPermissions {
		c.note("permissions", p.ask(ctx, api, ""))
		c.Yours = append(c.Yours, p)
	}
	if c.Controller == nil {
		return
	}
	needed := slices.Clone(accountPermissions)
	if slices.ContainsFunc(slices.Collect(maps.Values(c.Around)), func(n *around) bool { return len(n.VPAs) > 0 }) {
		needed = append(needed, vpaPermissions...)
	}
	needed = append(needed, signalPermissions(c.Signals)...)
	for _, p := range needed {
		c.note("account", p.ask(ctx, api, accountName(c.Controller)))
		c.Account = append(c.Account, p)
	}
}

func (c *Checkup) readObjects(ctx context.Context, a *Access) {
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
	if c.Allocations, err = readAllocations(ctx, a.Client, ""); err != nil && !notInstalled(err) {
		c.note("allocations", err)
	}
}

// readSurroundings reads what bends the decisions about pods, in all namespaces.
func (c *Checkup) readSurroundings(ctx context.Context, api client.Client) {
	var ranges corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	var budgets policyv1.PodDisruptionBudgetList
	c.note("limitranges", api.List(ctx, &ranges))
	c.note("resourcequotas", api.List(ctx, &quotas))
	c.note("horizontalpodautoscalers", api.List(ctx, &hpas))
	c.note("poddisruptionbudgets", api.List(ctx, &budgets))
	c.note("verticalpodautoscalers", c.Around.addVPAs(ctx, api, ""))
	for _, l := range ranges.Items {
		n := c.Around.of(l.Namespace)
		n.LimitRanges = append(n.LimitRanges, l)
	}
	for _, q := range quotas.Items {
		n := c.Around.of(q.Namespace)
		n.Quotas = append(n.Quotas, q)
	}
	for _, b := range budgets.Items {
		n := c.Around.of(b.Namespace)
		n.Budgets = append(n.Budgets, b)
	}
	for _, h := range hpas.Items {
		n := c.Around.of(h.Namespace)
		n.HPAs = append(n.HPAs, h)
		if looksAtCPU(&h) {
			n.find(ctx, api, h.Namespace, kube.HPATarget(&h))
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

// get reads one object, what in words; nil without an error means that there is none.
func get[T client.Object](ctx context.Context, c client.Client, what string, into T, namespace, name string) (T, error) {
	var none T
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read %s %s: %w", what, name, err)
	}
	return into, nil
}

// askAgents asks every agent for its last round, as far as they are few enough. An error means that none
// can be asked.
func askAgents(ctx context.Context, a *Access, c *Checkup) error {
	c.Markets, c.Silent = map[string]Market{}, map[string]error{}
	if a.Round == nil || len(c.Nodes) > liveNodes {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	for _, n := range c.Nodes {
		agent := agentOn(c.SystemPods, n.Name)
		if agent == nil {
			continue
		}
		market, _, err := askAgent(ctx, a, agent, n.Name)
		switch {
		case apierrors.IsForbidden(err):
			return err
		case err != nil:
			c.Silent[n.Name] = err
		default:
			c.Markets[n.Name] = market
		}
	}
	return nil
}
