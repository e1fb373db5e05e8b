package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/round"
)

// publisher writes decisions into PodAllocations.
type publisher struct {
	queue     *publishQueue
	client    rest.Interface
	published *publishedDecisions // learns what was written
	log       *slog.Logger
	metrics   *metrics
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
		result := classify(err)
		if result == unavailable {
			p.published.doubt(pub.Ref.Allocation) // it may have been written
		}
		return result, fmt.Errorf("patch podallocation %s/%s: %w", pub.Ref.Namespace, pub.Ref.UID, err)
	}
	p.published.record(pa.UID, allocation.Published(&pa))
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

// publishedDecisions are the decisions in the PodAllocations of the node's pods, by the UIDs of these
// objects. The agent alone writes them, so what it wrote it knows, and the rest it reads once: after its
// start, and of a pod that is new to it. A PodAllocation that was created again has another UID.
type publishedDecisions struct {
	client  rest.Interface
	changed func() // called when more is known
	log     *slog.Logger

	mu     sync.Mutex
	known  map[types.UID]round.Published
	unread []podRef
	wake   chan struct{} // holds one value: unread has changed
}

func newPublishedDecisions(c rest.Interface, changed func(), log *slog.Logger) *publishedDecisions {
	return &publishedDecisions{
		client: c, changed: changed, log: log, known: map[types.UID]round.Published{}, wake: make(chan struct{}, 1),
	}
}

// current are the published decisions as far as they are known.
func (d *publishedDecisions) current(now time.Time) map[types.UID]round.Published {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := make(map[types.UID]round.Published, len(d.known))
	for uid, p := range d.known {
		if p.At.After(now.Add(time.Minute)) {
			// It was written before this node's clock was set back. It counts as old: otherwise no
			// decrease would be published until the clock has caught up.
			p.At = time.Unix(0, 0)
		}
		known[uid] = p
	}
	return known
}

// follow takes in the pods of which the node's agent is told now. What is published about unread is read;
// what is known of other pods than these and those of the snapshot is forgotten.
func (d *publishedDecisions) follow(s *snapshot, unread []podRef) {
	if s.NotReady != "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := make(map[types.UID]round.Published, len(s.Refs))
	for _, ref := range slices.Concat(s.Refs, s.Starting, unread) {
		if p, ok := d.known[ref.Allocation]; ok {
			kept[ref.Allocation] = p
		}
	}
	d.known, d.unread = kept, slices.DeleteFunc(unread, func(ref podRef) bool { // just read
		_, known := kept[ref.Allocation]
		return known
	})
	if len(d.unread) > 0 {
		d.signal()
	}
}

func (d *publishedDecisions) signal() { signal(d.wake) }

// record takes in what a PodAllocation holds.
func (d *publishedDecisions) record(allocation types.UID, p round.Published) {
	d.mu.Lock()
	d.known[allocation] = p
	d.mu.Unlock()
	d.changed()
}

// doubt takes in that a decision may have been written. Whatever is decided next is published.
func (d *publishedDecisions) doubt(allocation types.UID) {
	d.mu.Lock()
	p := d.known[allocation]
	p.At, p.Limits = time.Time{}, maps.Clone(p.Limits)
	if p.Limits == nil {
		p.Limits = map[string]cpu.Milli{}
	}
	d.known[allocation] = p
	d.mu.Unlock()
	d.changed()
}

// Run reads what is not known until ctx ends. While the API server does not answer, it waits longer
// and longer.
func (d *publishedDecisions) Run(ctx context.Context) {
	var wait backoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		if d.readAll(ctx) {
			wait = backoff{}
			continue
		}
		wait = wait.doubled(time.Second, maxOutageBackoff, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.duration - rand.N(wait.duration/2)):
			d.signal()
		}
	}
}

// readAll reads what is not known, and says whether the API server answered.
func (d *publishedDecisions) readAll(ctx context.Context) bool {
	defer d.changed()
	d.mu.Lock()
	unread := d.unread
	d.mu.Unlock()
	for _, ref := range unread {
		p, err := d.read(ctx, ref)
		if err != nil && classify(err) == unavailable {
			d.log.Debug("published decision not read", "namespace", ref.Namespace, "pod", ref.Name, "err", err)
			return false
		}
		// Where it cannot be read for another reason, it is written anew; why that fails is then said.
		d.mu.Lock()
		d.known[ref.Allocation] = p
		d.mu.Unlock()
	}
	return true
}

// read is what a PodAllocation holds; nothing of one that was created again.
func (d *publishedDecisions) read(ctx context.Context, ref podRef) (round.Published, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var pa v1alpha1.PodAllocation
	err := d.client.Get().Namespace(ref.Namespace).Resource("podallocations").Name(string(ref.UID)).
		MaxRetries(0).Do(ctx).Into(&pa)
	if err != nil || pa.UID != ref.Allocation {
		return round.Published{}, err
	}
	return allocation.Published(&pa), nil
}
