package cli

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
)

// Checkup is everything that doctor has seen. What could not be read is nil or empty, and its error is in
// Unread under the name of the thing.
type Checkup struct {
	System  string
	Version string
	Served  podresize.Answer

	Yours   []Permission // of the person who asks
	Account []Permission // of the controller's service account

	// Paused is the reason of a pause; "" where there is none.
	Paused      string
	CRD         *apiextensionsv1.CustomResourceDefinition
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
	LimitRanges []corev1.LimitRange
	Quotas      []corev1.ResourceQuota
	HPAs        []autoscalingv2.HorizontalPodAutoscaler
	VPAs        []Scaler

	Unread map[string]error
}

// examine asks the API server everything, one question after the other; no answer stops it, but if nobody
// answers at all.
func examine(ctx context.Context, a *Access) *Checkup {
	c := &Checkup{System: a.System, Unread: map[string]error{}}
	version, err := a.Discovery.ServerVersionWithContext(ctx)
	if err != nil {
		c.note("version", err)
		return c
	}
	c.Version = version.GitVersion
	c.Served, err = podresize.Served(ctx, a.Discovery)
	c.note("resize", err)
	c.readInstall(ctx, a)
	c.readRights(ctx, a.Client)
	c.readObjects(ctx, a)
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
	reason, paused, err := a.paused(ctx)
	c.note("switch", err)
	if paused {
		c.Paused = reason
	}
}

func (c *Checkup) readRights(ctx context.Context, api client.Client) {
	for _, p := range yourPermissions {
		c.note("permissions", p.ask(ctx, api, ""))
		c.Yours = append(c.Yours, p)
	}
	if c.Controller == nil {
		return
	}
	for _, p := range accountPermissions {
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
	var ranges corev1.LimitRangeList
	var quotas corev1.ResourceQuotaList
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	list("pods", &pods)
	list("leases", &leases, client.InNamespace(a.System))
	list("nodes", &nodes)
	list("namespaces", &namespaces)
	list("limitranges", &ranges)
	list("resourcequotas", &quotas)
	list("horizontalpodautoscalers", &hpas)
	c.Pods, c.Leases, c.Nodes, c.Namespaces = pods.Items, leases.Items, nodes.Items, namespaces.Items
	c.LimitRanges, c.Quotas, c.HPAs = ranges.Items, quotas.Items, hpas.Items
	for _, p := range c.Pods {
		if p.Namespace == a.System {
			c.SystemPods = append(c.SystemPods, p)
		}
	}
	var err error
	if c.Allocations, err = readAllocations(ctx, a.Client, ""); err != nil && !notInstalled(err) {
		c.note("allocations", err)
	}
	c.VPAs, err = readVPAs(ctx, a.Client)
	c.note("verticalpodautoscalers", err)
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
