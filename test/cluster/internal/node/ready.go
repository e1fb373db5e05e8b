package node

import (
	"context"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
)

// Ready is nil once the node is Ready, its kubelet has renewed its Lease after since, and
// the kubelet knows every pod that is bound to it. The condition alone outlives a
// crash by a minute; and a kubelet that gets a resize in its first
// second, before it knows its pods, retries it only 30 s later.
func Ready(ctx context.Context, c config.Config, name string, since time.Time) error {
	if err := heartbeatSince(ctx, c, name, since); err != nil {
		return err
	}
	if err := condition(ctx, c, name); err != nil {
		return err
	}
	return knowsItsPods(ctx, c, name)
}

func heartbeatSince(ctx context.Context, c config.Config, name string, since time.Time) error {
	var lease struct{ Spec struct{ RenewTime time.Time } }
	if err := controlplane.Get(ctx, c, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+name, &lease); err != nil {
		return err
	}
	if t := lease.Spec.RenewTime; t.Before(since) {
		return fmt.Errorf("node %s: last heartbeat at %s", name, t.Local().Format(time.TimeOnly))
	}
	return nil
}

func condition(ctx context.Context, c config.Config, name string) error {
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := controlplane.Get(ctx, c, "/api/v1/nodes/"+name, &n); err != nil {
		return err
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type != "Ready" {
			continue
		}
		if cond.Status != "True" {
			return fmt.Errorf("node %s: %s: %s", name, cond.Reason, cond.Message)
		}
		return nil
	}
	return fmt.Errorf("node %s: no Ready condition yet", name)
}

type podList struct {
	Items []struct {
		Metadata struct{ Name, Namespace, UID string }
		Status   struct{ Phase string }
	}
}

func knowsItsPods(ctx context.Context, c config.Config, name string) error {
	var bound, known podList
	if err := controlplane.Get(ctx, c, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+name, &bound); err != nil {
		return err
	}
	if err := controlplane.Get(ctx, c, "/api/v1/nodes/"+name+"/proxy/pods", &known); err != nil {
		return err
	}
	knows := map[string]bool{}
	for _, p := range known.Items {
		knows[p.Metadata.UID] = true
	}
	for _, p := range bound.Items {
		ended := p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
		if !ended && !knows[p.Metadata.UID] {
			return fmt.Errorf("node %s: its kubelet does not know pod %s/%s yet", name, p.Metadata.Namespace, p.Metadata.Name)
		}
	}
	return nil
}
