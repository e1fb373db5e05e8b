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
	var lease struct{ Spec struct{ RenewTime time.Time } }
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"
	if err := controlplane.Get(ctx, c, leases+name, &lease); err != nil {
		return err
	}
	if t := lease.Spec.RenewTime; t.Before(since) {
		return fmt.Errorf("node %s: last heartbeat at %s", name, t.Local().Format(time.TimeOnly))
	}
	n, err := get(ctx, c, name)
	if err != nil {
		return err
	}
	ready := condition{Reason: "no Ready condition yet"}
	for _, cond := range n.Status.Conditions {
		if cond.Type == "Ready" {
			ready = cond
		}
	}
	if ready.Status != "True" {
		return fmt.Errorf("node %s: %s: %s", name, ready.Reason, ready.Message)
	}
	return knowsItsPods(ctx, c, name)
}

type condition struct{ Type, Status, Reason, Message string }

type apiNode struct {
	Status struct {
		Conditions []condition
		NodeInfo   struct{ ContainerRuntimeVersion string }
	}
}

func get(ctx context.Context, c config.Config, name string) (n apiNode, err error) {
	err = controlplane.Get(ctx, c, "/api/v1/nodes/"+name, &n)
	return n, err
}

// RuntimeVersion is the runtime's name and version, by the word of the node.
func RuntimeVersion(ctx context.Context, c config.Config, name string) (string, error) {
	n, err := get(ctx, c, name)
	return n.Status.NodeInfo.ContainerRuntimeVersion, err
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
			return fmt.Errorf("node %s: its kubelet does not know pod %s/%s yet",
				name, p.Metadata.Namespace, p.Metadata.Name)
		}
	}
	return nil
}
