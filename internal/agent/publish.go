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
	queue       *publishQueue
	client      rest.Interface
	recordWrite func(*v1alpha1.PodAllocation) // gets what the API server returned
	log         *slog.Logger
	metrics     *metrics
}

const (
	// writers is how many writes are in flight at once: when the CPU of a full node becomes free, the
	// limits of all its pods are raised in the same second.
	writers = 4
	// writeTimeout bounds one write.
	writeTimeout = 5 * time.Second
)

// Run writes what is queued until ctx ends.
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
		pub, expiredCount, ok := p.queue.next(time.Now())
		p.metrics.publishes[expired].Add(float64(expiredCount))
		if !ok {
			return
		}
		p.queue.signal() // another writer may take the next one
		result, err := p.write(ctx, pub)
		now := time.Now()
		p.queue.done(pub, result, now)
		p.metrics.publishes[result].Inc()
		log := p.log.With("namespace", pub.Ref.Namespace, "pod", pub.Ref.Name)
		switch {
		case result == written:
			p.metrics.delay.Observe(now.Sub(pub.At).Seconds())
			log.Debug("published", "limit", pub.Decision.Limit, "price", pub.Decision.Price)
		case result == notFound, result == conflict, ctx.Err() != nil: // expected
			log.Debug("not published", "err", err)
		default:
			log.Warn("not published", "result", result.String(), "err", err)
		}
	}
}

// write sends one decision.
func (p *publisher) write(ctx context.Context, pub publication) (publishResult, error) {
	body, err := patch(pub)
	if err != nil {
		return invalid, err
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var pa v1alpha1.PodAllocation
	request := p.client.Patch(types.MergePatchType).Namespace(pub.Ref.Namespace).
		Resource("podallocations").Name(string(pub.Ref.UID)).Param("fieldManager", "mbcas-agent").
		MaxRetries(0) // the queue decides when to try again, and with which decision
	if err := request.Body(body).Do(ctx).Into(&pa); err != nil {
		return classify(err), fmt.Errorf("patch podallocation %s/%s: %w", pub.Ref.Namespace, pub.Ref.UID, err)
	}
	p.recordWrite(&pa)
	return written, nil
}

// specPatch is the part of a PodAllocation that the agent writes. A merge patch (RFC 7386) leaves
// absent fields as they are, so the fields of a decision that may be empty are always present.
type specPatch struct {
	DesiredCPULimit *cpu.Milli                `json:"desiredCPULimit"`
	Containers      []v1alpha1.ContainerLimit `json:"containers"`
	Decision        decisionPatch             `json:"decision"`
}

type decisionPatch struct {
	*v1alpha1.Decision
	CoordinationPercent *int32 `json:"coordinationPercent"`
	Pressure            *int32 `json:"cpuPressurePercent"`
	MemoryPressure      *int32 `json:"memoryPressurePercent"`
	IOPressure          *int32 `json:"ioPressurePercent"`
	FloorsExceedSupply  bool   `json:"floorsExceedSupply"`
}

// patch is the merge patch for a decision. It names the UID of the PodAllocation that the decision
// was made for: one that was created again under the same name answers with a conflict.
func patch(pub publication) ([]byte, error) {
	spec := allocation.DecisionSpec(pub.Decision, pub.Weights, pub.Node, pub.At)
	d := spec.Decision
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pub.Ref.Allocation},
		"spec": specPatch{spec.DesiredCPULimit, spec.Containers, decisionPatch{
			d, d.CoordinationPercent, d.CPUPressurePercent, d.MemoryPressurePercent, d.IOPressurePercent, d.FloorsExceedSupply,
		}},
	})
}

// publishResult is what became of one decision to publish.
type publishResult uint8

const (
	written     publishResult = iota // the API server accepted it
	expired                          // too old before it could be written
	notFound                         // the PodAllocation does not exist any more
	conflict                         // the PodAllocation was created again; the next round uses the new one
	invalid                          // the API server rejects its content: a bug
	forbidden                        // RBAC or an admission policy refuses it
	unavailable                      // the API server is unreachable, overloaded or broken
	publishResults
)

// resultKinds are the name of each result, and the first wait after it: of its pod or, where the API
// server is unavailable, of all.
var resultKinds = [publishResults]struct {
	name    string
	backoff time.Duration
}{
	written:     {name: "written"},
	expired:     {name: "expired"},
	notFound:    {"not_found", 10 * time.Second},
	conflict:    {"conflict", time.Second},
	invalid:     {"invalid", 30 * time.Second},
	forbidden:   {"forbidden", 30 * time.Second},
	unavailable: {"unavailable", time.Second},
}

func (r publishResult) String() string { return resultKinds[r].name }

func classify(err error) publishResult {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unavailable // no answer
	}
	switch code := status.Status().Code; {
	case code == http.StatusNotFound, code == http.StatusGone:
		return notFound
	case code == http.StatusConflict:
		return conflict
	case code == http.StatusForbidden:
		return forbidden
	case code == http.StatusUnauthorized,
		code == http.StatusTooManyRequests,
		code == http.StatusRequestTimeout,
		code >= 500:
		return unavailable
	}
	return invalid
}
