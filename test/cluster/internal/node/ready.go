package node

import (
	"context"
	"fmt"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/plane"
)

// Ready is nil once the node is Ready, its kubelet was heard of after since, and
// the kubelet knows every pod that is bound to it. The condition alone outlives a
// crash by a minute; and a kubelet that is asked to resize a pod in its first
// second, before it knows its pods, looks at the request again only 30 s later.
func Ready(ctx context.Context, c config.Config, since time.Time) error {
	if err := heard(ctx, c, since); err != nil {
		return err
	}
	if err := condition(ctx, c); err != nil {
		return err
	}
	return knowsItsPods(ctx, c)
}

func heard(ctx context.Context, c config.Config, since time.Time) error {
	var lease struct{ Spec struct{ RenewTime time.Time } }
	if err := plane.Get(ctx, c, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+c.NodeName, &lease); err != nil {
		return err
	}
	if t := lease.Spec.RenewTime; t.Before(since) {
		return fmt.Errorf("node %s: last heard of at %s", c.NodeName, t.Local().Format(time.TimeOnly))
	}
	return nil
}

func condition(ctx context.Context, c config.Config) error {
	var n struct {
		Status struct {
			Conditions []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := plane.Get(ctx, c, "/api/v1/nodes/"+c.NodeName, &n); err != nil {
		return err
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type != "Ready" {
			continue
		}
		if cond.Status != "True" {
			return fmt.Errorf("node %s: %s: %s", c.NodeName, cond.Reason, cond.Message)
		}
		return nil
	}
	return fmt.Errorf("node %s: no Ready condition yet", c.NodeName)
}

type podList struct {
	Items []struct {
		Metadata struct{ Name, Namespace, UID string }
		Status   struct{ Phase string }
	}
}

func knowsItsPods(ctx context.Context, c config.Config) error {
	var bound, known podList
	if err := plane.Get(ctx, c, "/api/v1/pods?fieldSelector=spec.nodeName%3D"+c.NodeName, &bound); err != nil {
		return err
	}
	if err := plane.Get(ctx, c, "/api/v1/nodes/"+c.NodeName+"/proxy/pods", &known); err != nil {
		return err
	}
	knows := map[string]bool{}
	for _, p := range known.Items {
		knows[p.Metadata.UID] = true
	}
	for _, p := range bound.Items {
		ended := p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed"
		if !ended && !knows[p.Metadata.UID] {
			return fmt.Errorf("node %s: its kubelet does not know pod %s/%s yet", c.NodeName, p.Metadata.Namespace, p.Metadata.Name)
		}
	}
	return nil
}
