package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// Facts are all that the checks judge. What could not be read is nil or empty, and its error is in
// Unreadable.
type Facts struct {
	snapshot.Snapshot // of all pods

	Now     time.Time
	Version string // of the API server; "": it does not respond
	Served  podresize.Answer

	UserPermissions       []Permission
	ControllerPermissions []Permission

	Switch      restore.State
	CRD         *apiextensionsv1.CustomResourceDefinition
	NodeCRD     *apiextensionsv1.CustomResourceDefinition
	SignalCRD   *apiextensionsv1.CustomResourceDefinition
	Signals     []v1alpha1.DemandSignal
	Controller  *appsv1.Deployment
	Agent       *appsv1.DaemonSet
	SystemPods  []corev1.Pod
	Leases      map[string]*coordinationv1.Lease // by name
	Nodes       []corev1.Node
	Namespaces  []corev1.Namespace
	Rounds      map[string]snapshot.Market // by node
	RoundErrors map[string]error           // by node, of agents whose last round cannot be read

	// DefaultLimits is the policy that gives pods a default limit; nil: there is none, or no namespace asks for it.
	DefaultLimits *admissionv1.MutatingAdmissionPolicy

	Unreadable map[string]error // by the kind of object
}

// Gather reads all facts, one request after the other. It stops only if the API server does not
// respond.
func Gather(ctx context.Context, a *cluster.Access) *Facts {
	c := &Facts{Unreadable: map[string]error{}}
	c.System, c.Modes, c.Objects = a.System, map[string]kube.Mode{}, snapshot.ObjectsByNamespace{}
	version, err := a.Discovery.ServerVersionWithContext(ctx)
	c.Now = a.ServerNow() // once there is an answer
	if err != nil {
		c.record("version", err)
		return c
	}
	c.Version = version.GitVersion
	c.Served, err = podresize.Served(ctx, a.Discovery)
	c.record("resize", err)
	c.readInstallation(ctx, a)
	c.readObjects(ctx, a)
	c.readConstrainingObjects(ctx, a.Client)
	c.readSignals(ctx, a)
	c.readPermissions(ctx, a.Client)
	c.record("rounds", c.readRounds(ctx, a))
	return c
}

func (c *Facts) record(kind string, err error) {
	if err != nil {
		c.Unreadable[kind] = err
	}
}

// get reads one object; nil if it does not exist or cannot be read.
func get[T client.Object](ctx context.Context, c *Facts, api client.Client, fact string, o T, key client.ObjectKey) T {
	found, err := cluster.Get(ctx, api, o, key)
	c.record(fact, err)
	return found
}

// list lists objects; none if they cannot be read.
func list[T client.ObjectList](ctx context.Context, c *Facts, api client.Client, fact string, into T) T {
	c.record(fact, api.List(ctx, into))
	return into
}

func (c *Facts) readInstallation(ctx context.Context, a *cluster.Access) {
	own := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: a.System, Name: name} }
	c.CRD = get(ctx, c, a.Client, "crd", &apiextensionsv1.CustomResourceDefinition{},
		client.ObjectKey{Name: cluster.CRDName})
	c.NodeCRD = get(ctx, c, a.Client, "nodecrd", &apiextensionsv1.CustomResourceDefinition{},
		client.ObjectKey{Name: cluster.NodeCRDName})
	c.Controller = get(ctx, c, a.Client, "controller", &appsv1.Deployment{}, own(cluster.ControllerName))
	c.Agent = get(ctx, c, a.Client, "agent", &appsv1.DaemonSet{}, own(cluster.AgentName))
	c.Removed = c.Controller == nil && c.Agent == nil && c.Unreadable["controller"] == nil && c.Unreadable["agent"] == nil
	var err error
	c.Switch, err = restore.ReadState(ctx, a.Client, a.System)
	c.record("switch", err)
	c.Settings, err = cluster.ReadSettings(ctx, a)
	c.record("settings", err)
}

func (c *Facts) readObjects(ctx context.Context, a *cluster.Access) {
	c.Pods = list(ctx, c, a.Client, "pods", &corev1.PodList{}).Items
	var leases coordinationv1.LeaseList
	c.record("leases", a.Client.List(ctx, &leases, client.InNamespace(a.System)))
	c.Leases = map[string]*coordinationv1.Lease{}
	for i := range leases.Items {
		c.Leases[leases.Items[i].Name] = &leases.Items[i]
	}
	c.Nodes = list(ctx, c, a.Client, "nodes", &corev1.NodeList{}).Items
	c.Namespaces = list(ctx, c, a.Client, "namespaces", &corev1.NamespaceList{}).Items
	for _, ns := range c.Namespaces {
		c.Modes[ns.Name], _ = kube.ModeOf(ns.Labels, c.Settings.Mode())
	}
	if c.asksForDefaultLimits() {
		var err error
		key := client.ObjectKey{Name: cluster.DefaultLimits}
		c.DefaultLimits, err = cluster.Get(ctx, a.Client, &admissionv1.MutatingAdmissionPolicy{}, key)
		if !cluster.NotInstalled(err) {
			c.record(defaultLimits, err)
		}
	}
	for _, p := range c.Pods {
		if p.Namespace == a.System {
			c.SystemPods = append(c.SystemPods, p)
		}
	}
	var err error
	if c.Allocations, err = cluster.ReadAllocations(ctx, a.Client, ""); err != nil && !cluster.NotInstalled(err) {
		c.record("allocations", err)
	}
}

// readConstrainingObjects reads the objects of all namespaces that constrain limits.
func (c *Facts) readConstrainingObjects(ctx context.Context, api client.Client) {
	c.record("verticalpodautoscalers", cluster.AddVPAs(ctx, api, c.Objects, ""))
	for _, l := range list(ctx, c, api, "limitranges", &corev1.LimitRangeList{}).Items {
		n := c.Objects.Get(l.Namespace)
		n.LimitRanges = append(n.LimitRanges, l)
	}
	for _, q := range list(ctx, c, api, "resourcequotas", &corev1.ResourceQuotaList{}).Items {
		n := c.Objects.Get(q.Namespace)
		n.Quotas = append(n.Quotas, q)
	}
	for _, b := range list(ctx, c, api, "poddisruptionbudgets", &policyv1.PodDisruptionBudgetList{}).Items {
		n := c.Objects.Get(b.Namespace)
		binding, _ := constraints.PDBsOf([]policyv1.PodDisruptionBudget{b}, c.Now)
		n.PDBs = append(n.PDBs, binding...)
	}
	for _, h := range list(ctx, c, api, "horizontalpodautoscalers", &autoscalingv2.HorizontalPodAutoscalerList{}).Items {
		n := c.Objects.Get(h.Namespace)
		n.HPAs = append(n.HPAs, h)
		if scalesOnCPU(&h) {
			cluster.ResolveTarget(ctx, api, n, h.Namespace, kube.HPATarget(&h))
		}
	}
}

// scalesOnCPU says whether the autoscaler scales on the CPU usage of pods.
func scalesOnCPU(h *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(h.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Resource != nil && m.Resource.Name == corev1.ResourceCPU ||
			m.ContainerResource != nil && m.ContainerResource.Name == corev1.ResourceCPU
	})
}

// readSignals reads the DemandSignals of all namespaces, if the cluster serves the kind.
func (c *Facts) readSignals(ctx context.Context, a *cluster.Access) {
	c.SignalCRD = get(ctx, c, a.Client, "signalcrd", &apiextensionsv1.CustomResourceDefinition{},
		client.ObjectKey{Name: cluster.SignalCRDName})
	if c.Unreadable["signalcrd"] == nil && c.SignalCRD == nil {
		return
	}
	var list v1alpha1.DemandSignalList
	if err := a.Client.List(ctx, &list); err != nil {
		c.record("demandsignals", fmt.Errorf("list demandsignals: %w", err))
	}
	c.Signals = list.Items
}

func (c *Facts) readPermissions(ctx context.Context, api client.Client) {
	for _, p := range userPermissions {
		c.record("permissions", p.review(ctx, api, ""))
		c.UserPermissions = append(c.UserPermissions, p)
	}
	if c.Controller == nil {
		return
	}
	needed := slices.Clone(controllerPermissions)
	for _, n := range c.Objects {
		if len(n.VPAs) > 0 {
			needed = append(needed, vpaPermissions...)
			break
		}
	}
	needed = append(needed, signalPermissions(c.Signals)...)
	for _, p := range needed {
		c.record("controller permissions", p.review(ctx, api, accountName(c.Controller)))
		c.ControllerPermissions = append(c.ControllerPermissions, p)
	}
}

// readRounds reads the last round of every agent, unless there are too many. The error means that
// no agent may be read.
func (c *Facts) readRounds(ctx context.Context, a *cluster.Access) error {
	c.Rounds, c.RoundErrors = map[string]snapshot.Market{}, map[string]error{}
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
			c.Rounds[n.Name] = market
		}
	}
	return nil
}
