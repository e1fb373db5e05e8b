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

// examine asks the API server everything, one question after the other; no answer stops it.
func examine(ctx context.Context, a *Access) *Checkup {
	c := &Checkup{System: a.System, Unread: map[string]error{}}
	note := func(what string, err error) {
		if err != nil {
			c.Unread[what] = err
		}
	}
	version, err := a.Discovery.ServerVersionWithContext(ctx)
	note("version", err)
	if err != nil {
		return c // nobody answers: every other question would wait for nothing
	}
	c.Version = version.GitVersion
	c.Served, err = podresize.Served(ctx, a.Discovery)
	note("resize", err)

	c.CRD, err = get(ctx, a.Client, "CRD", &apiextensionsv1.CustomResourceDefinition{}, "", crdName)
	note("crd", err)
	c.Controller, err = get(ctx, a.Client, "deployment", &appsv1.Deployment{}, a.System, controllerName)
	note("controller", err)
	c.Agent, err = get(ctx, a.Client, "daemonset", &appsv1.DaemonSet{}, a.System, agentName)
	note("agent", err)

	reason, paused, err := a.paused(ctx)
	note("switch", err)
	if paused {
		c.Paused = reason
	}

	for _, p := range yourPermissions {
		note("permissions", p.ask(ctx, a.Client, ""))
		c.Yours = append(c.Yours, p)
	}
	if c.Controller != nil {
		for _, p := range accountPermissions {
			note("account", p.ask(ctx, a.Client, accountName(c.Controller)))
			c.Account = append(c.Account, p)
		}
	}

	var pods corev1.PodList
	note("pods", a.Client.List(ctx, &pods))
	c.Pods = pods.Items
	for _, p := range pods.Items {
		if p.Namespace == a.System {
			c.SystemPods = append(c.SystemPods, p)
		}
	}
	c.Allocations, err = readAllocations(ctx, a.Client, "")
	if err != nil && !notInstalled(err) {
		note("allocations", err)
	}
	var leases coordinationv1.LeaseList
	note("leases", a.Client.List(ctx, &leases, client.InNamespace(a.System)))
	c.Leases = leases.Items
	var nodes corev1.NodeList
	note("nodes", a.Client.List(ctx, &nodes))
	c.Nodes = nodes.Items
	note("rounds", askAgents(ctx, a, c))
	var namespaces corev1.NamespaceList
	note("namespaces", a.Client.List(ctx, &namespaces))
	c.Namespaces = namespaces.Items
	var ranges corev1.LimitRangeList
	note("limitranges", a.Client.List(ctx, &ranges))
	c.LimitRanges = ranges.Items
	var quotas corev1.ResourceQuotaList
	note("resourcequotas", a.Client.List(ctx, &quotas))
	c.Quotas = quotas.Items
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	note("horizontalpodautoscalers", a.Client.List(ctx, &hpas))
	c.HPAs = hpas.Items
	c.VPAs, err = readVPAs(ctx, a.Client)
	note("verticalpodautoscalers", err)
	return c
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
