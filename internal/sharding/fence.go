package sharding

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
)

// ErrMoved is why a write about a node is not sent: another replica owns the node, or may.
var ErrMoved = errors.New("not sent: the node is not this replica's any more")

type nodeKey struct{}

// WithNode is a context for writes about a node.
func WithNode(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// check returns ErrMoved for a write about a node that the replica does not own now.
func (r *Replica) check(ctx context.Context) error {
	if node, ok := ctx.Value(nodeKey{}).(string); ok && !r.Owns(node) {
		return ErrMoved
	}
	return nil
}

// Client is a client that sends no write with a context WithNode of another replica. What such a
// write might overwrite all the same, as it was under way when the node moved, its resourceVersion
// protects.
func (r *Replica) Client(c client.Client) client.Client {
	if r == nil {
		return c
	}
	return fenced{c, r}
}

type fenced struct {
	client.Client
	replica *Replica
}

func (f fenced) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := f.replica.check(ctx); err != nil {
		return err
	}
	return f.Client.Create(ctx, o, opts...)
}

func (f fenced) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if err := f.replica.check(ctx); err != nil {
		return err
	}
	return f.Client.Update(ctx, o, opts...)
}

func (f fenced) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := f.replica.check(ctx); err != nil {
		return err
	}
	return f.Client.Patch(ctx, o, p, opts...)
}

func (f fenced) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := f.replica.check(ctx); err != nil {
		return err
	}
	return f.Client.Delete(ctx, o, opts...)
}

func (f fenced) Status() client.SubResourceWriter { return fencedStatus{f.Client.Status(), f.replica} }

type fencedStatus struct {
	client.SubResourceWriter
	replica *Replica
}

func (f fencedStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := f.replica.check(ctx); err != nil {
		return err
	}
	return f.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// Resizer is a resizer that sends nothing for a pod on a node of another replica.
func (r *Replica) Resizer(next podresize.Resizer) podresize.Resizer {
	if r == nil {
		return next
	}
	return fencedResizer{next, r}
}

type fencedResizer struct {
	podresize.Resizer
	replica *Replica
}

func (f fencedResizer) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	if !f.replica.Owns(pod.Spec.NodeName) {
		return podresize.Result{Outcome: podresize.Unavailable, Message: ErrMoved.Error()}
	}
	return f.Resizer.Apply(ctx, pod, move)
}

func (f fencedResizer) DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) podresize.Result {
	if !f.replica.Owns(pod.Spec.NodeName) {
		return podresize.Result{Outcome: podresize.Unavailable, Message: ErrMoved.Error()}
	}
	return f.Resizer.DryRun(ctx, pod, move)
}
