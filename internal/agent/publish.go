package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
)

// publisher writes decisions into PodAllocations.
type publisher struct {
	queue   *queue
	client  rest.Interface
	wrote   func(*v1alpha1.PodAllocation) // gets what the API server answered
	log     *slog.Logger
	metrics *metrics
}

const (
	// writers is how many decisions are under way at once: on a full node whose CPU becomes free all
	// pods are raised in the same second.
	writers = 4
	// writeTimeout is the longest that one write may take.
	writeTimeout = 5 * time.Second
)

// Run writes what the queue holds until ctx ends.
func (p *publisher) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for range writers {
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-p.queue.wake:
					p.drain(ctx)
				}
			}
		})
	}
}

// drain writes until nothing is left that may be written now.
func (p *publisher) drain(ctx context.Context) {
	for ctx.Err() == nil {
		o, stale, ok := p.queue.next(time.Now())
		p.metrics.publishes[dropped].Add(float64(stale))
		if !ok {
			return
		}
		p.queue.signal() // another writer may take the next one
		out, err := p.write(ctx, o)
		now := time.Now()
		p.queue.done(o, out, now)
		p.metrics.publishes[out].Inc()
		switch {
		case out == written:
			p.metrics.delay.Observe(now.Sub(o.At).Seconds())
			p.log.Debug("published", "namespace", o.Ref.Namespace, "pod", o.Ref.Name, "grant", o.Decision.Limit, "price", o.Decision.Price)
		case out == gone, out == conflict, ctx.Err() != nil: // expected
			p.log.Debug("not published", "namespace", o.Ref.Namespace, "pod", o.Ref.Name, "err", err)
		default:
			p.log.Warn("not published", "namespace", o.Ref.Namespace, "pod", o.Ref.Name, "outcome", out.String(), "err", err)
		}
	}
}

// write sends one decision.
func (p *publisher) write(ctx context.Context, o offer) (outcome, error) {
	body, err := patch(o)
	if err != nil {
		return refused, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var pa v1alpha1.PodAllocation
	err = p.client.Patch(types.MergePatchType).MaxRetries(0). // the queue knows when to try again, and with what
									Namespace(o.Ref.Namespace).Resource("podallocations").Name(string(o.Ref.UID)).
									Param("fieldManager", "mbcas-agent").Body(body).Do(ctx).Into(&pa)
	if err != nil {
		return classify(err), fmt.Errorf("patch podallocation %s/%s: %w", o.Ref.Namespace, o.Ref.UID, err)
	}
	p.wrote(&pa)
	return written, nil
}

// specPatch is the part of a PodAllocation that the agent writes. In a merge patch what is absent stays as it is, so
// the fields of a decision that may be empty are written out.
type specPatch struct {
	DesiredCPULimit *cpu.Milli                `json:"desiredCPULimit"`
	Containers      []v1alpha1.ContainerLimit `json:"containers"`
	Decision        decisionPatch             `json:"decision"`
}

type decisionPatch struct {
	v1alpha1.Decision
	CoordinationPercent *int32 `json:"coordinationPercent"`
	Pressure            *int32 `json:"cpuPressurePercent"`
	MemoryPressure      *int32 `json:"memoryPressurePercent"`
	IOPressure          *int32 `json:"ioPressurePercent"`
	FloorsExceedSupply  bool   `json:"floorsExceedSupply"`
}

// patch is the merge patch for a decision. It holds only for the object that the decision was
// made for: a PodAllocation that was made anew answers with a conflict.
func patch(o offer) ([]byte, error) {
	spec := allocation.Spec(o.Decision, o.Weights, o.Node, o.At)
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.Ref.Allocation},
		"spec": specPatch{
			DesiredCPULimit: spec.DesiredCPULimit, Containers: spec.Containers,
			Decision: decisionPatch{
				Decision: *spec.Decision, CoordinationPercent: spec.Decision.CoordinationPercent, Pressure: spec.Decision.CPUPressurePercent,
				FloorsExceedSupply: spec.Decision.FloorsExceedSupply,
				MemoryPressure:     spec.Decision.MemoryPressurePercent, IOPressure: spec.Decision.IOPressurePercent,
			},
		},
	})
}

// outcome is what came of one decision that was to be published.
type outcome uint8

const (
	written     outcome = iota // the API server took it
	dropped                    // too old before it could be written
	gone                       // the PodAllocation is not there any more
	conflict                   // the PodAllocation was made anew; the next round knows
	refused                    // the API server finds it invalid: our fault
	forbidden                  // RBAC or an admission policy speaks against it
	unavailable                // the API server can't be reached, is overloaded or broken
	outcomes
)

func (o outcome) String() string {
	return [outcomes]string{"written", "dropped", "gone", "conflict", "refused", "forbidden", "unavailable"}[o]
}

type scope uint8

const (
	restNobody scope = iota
	restPod
	restAll
)

// rest is the first pause after an outcome, and for whom.
func (o outcome) rest() (time.Duration, scope) {
	switch o {
	case written, dropped:
		return 0, restNobody
	case conflict:
		return time.Second, restPod
	case gone:
		return 10 * time.Second, restPod
	case refused, forbidden:
		return 30 * time.Second, restPod
	case unavailable:
		return time.Second, restAll
	}
	panic("outcome out of range")
}

func classify(err error) outcome {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unavailable // no answer
	}
	switch code := status.Status().Code; {
	case code == http.StatusNotFound, code == http.StatusGone:
		return gone
	case code == http.StatusConflict:
		return conflict
	case code == http.StatusForbidden:
		return forbidden
	case code == http.StatusUnauthorized, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		return unavailable
	}
	return refused
}
