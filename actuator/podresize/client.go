package podresize

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
)

// Timeout is how long one attempt may take. The API server itself gives up on admission
// webhooks and quota after 10 s.
const Timeout = 8 * time.Second

// Resizer carries moves out; a *Client is one.
type Resizer interface {
	Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) Result
	DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) Result
}

// Client sends moves to the API server. It needs the verb patch on pods/resize only.
type Client struct {
	// API is where the requests go; a client.Client is one.
	API client.SubResourceClientConstructor
	// FieldOwner is the name under which the API server records the changes.
	FieldOwner string
	// Timeout bounds one attempt, including the retries of client-go after 429 or 5xx with a
	// Retry-After header.
	Timeout time.Duration
}

// New is a Client of that owner with the default timeout.
func New(api client.SubResourceClientConstructor, owner string) *Client {
	return &Client{API: api, FieldOwner: owner, Timeout: Timeout}
}

// Apply carries out the move. The pod is the copy that the move was decided on: if the stored pod
// differs from it in any way, the outcome is Conflict and nothing changes.
//
// If ctx has ended, nothing is sent. If it ends later, Apply still waits for the answer, for Timeout
// at most, because the API server may carry out a request whose client has gone.
func (c *Client) Apply(ctx context.Context, pod *corev1.Pod, move actuator.Move) Result {
	if err := ctx.Err(); err != nil {
		return Result{Outcome: Unavailable, Message: fmt.Sprintf("resize of pod %s/%s: not sent: %v", pod.Namespace, pod.Name, err)}
	}
	return c.send(context.WithoutCancel(ctx), pod, move)
}

// DryRun returns the outcome that Apply would have, and changes nothing. Accepted means that admission
// changes nothing but the CPU limits of the move. ResourceQuota charges nothing for a dry run.
func (c *Client) DryRun(ctx context.Context, pod *corev1.Pod, move actuator.Move) Result {
	r := c.send(ctx, pod, move, client.DryRunAll)
	if r.Outcome == WouldMutate {
		r.Pod = nil
	}
	return r
}

func (c *Client) send(ctx context.Context, pod *corev1.Pod, move actuator.Move, opts ...client.SubResourcePatchOption) Result {
	patch, refusal, ok := newPatch(pod, move)
	if !ok {
		return refusal
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer := &corev1.Pod{}
	answer.Namespace, answer.Name = pod.Namespace, pod.Name
	opts = append(opts, client.FieldOwner(c.FieldOwner))
	err := c.API.SubResource("resize").Patch(ctx, answer, client.RawPatch(types.StrategicMergePatchType, patch), opts...)
	if err != nil {
		return Classify(err)
	}
	return judge(pod, move, answer)
}
