package dispatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/mbcas/mbcas/internal/quota"
)

// exactly is a jitter of nothing.
func exactly(d time.Duration) time.Duration { return d }

// alone is a replica without others.
func alone(context.Context, string) (float64, error) { return 0, nil }

// server answers resizes as a function says.
type server func(pod *corev1.Pod) podresize.Result

func (s server) Apply(_ context.Context, pod *corev1.Pod, _ actuator.Move) podresize.Result {
	return s(pod)
}
func (s server) DryRun(context.Context, *corev1.Pod, actuator.Move) podresize.Result {
	return podresize.Result{Outcome: podresize.Accepted}
}

// watched calls a function of the test at each dry run.
type watched struct {
	podresize.Resizer
	b *bench
}

func (w watched) DryRun(ctx context.Context, pod *corev1.Pod, m actuator.Move) podresize.Result {
	if w.b.dryRun != nil {
		w.b.dryRun()
	}
	return w.Resizer.DryRun(ctx, pod, m)
}

// bench is a dispatcher with what it told.
type bench struct {
	*Dispatcher
	mu       sync.Mutex
	answered []string // nodes
	failed   []error
	blocked  reasons.Reason
	unknown  error  // whether resizes are possible
	dryRun   func() // what happens during a dry run
	moved    string // a node that another replica owns
	mode     string // of every namespace; "" that by default
	gone     bool   // every namespace
	audit    *bytes.Buffer
}

func newBench(c flowcontrol.Config, s server) *bench {
	empty := fake.NewClientBuilder().Build()
	b := &bench{audit: &bytes.Buffer{}}
	b.Dispatcher = (&Dispatcher{
		Resizer: watched{s, b}, Live: empty, Client: namespaces{empty, b}, DefaultMode: kube.ModeEnforce, Gate: flowcontrol.NewGate(nil, nil), Breakers: flowcontrol.NewBreakers(exactly),
		Quotas:      NewQuotas(empty, 0.1, quota.NewReservations(quota.DefaultConfig(), time.Minute, time.Hour), alone),
		Suspended:   func(context.Context) (reasons.Reason, error) { return b.blocked, b.unknown },
		FreezeAfter: time.Minute, Now: time.Now, Owns: func(node string) bool { return node != b.moved },
		Answered: func(_ context.Context, node string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.answered = append(b.answered, node)
		},
		Failed: func(_ context.Context, _ *corev1.Pod, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.failed = append(b.failed, err)
		},
		Audit: slog.New(slog.NewJSONHandler(b.audit, nil)), Metrics: metrics.New(prometheus.NewRegistry()),
	}).Init(c)
	return b
}

// namespaces reads the namespaces of a bench.
type namespaces struct {
	client.Reader
	*bench
}

func (n namespaces) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	if n.gone {
		return apierrors.NewNotFound(corev1.Resource("namespaces"), key.Name)
	}
	if n.mode != "" {
		to.SetLabels(map[string]string{kube.ModeLabel: n.mode})
	}
	return nil
}

// resizeOf asks for an increase of a pod.
func (b *bench) resizeOf(namespace, name, node string, p flowcontrol.Priority) Request {
	uid := types.UID(namespace + "/" + name)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}, Spec: corev1.PodSpec{NodeName: node},
	}
	m := &actuator.Move{UID: string(uid), Changes: []actuator.Change{{Container: "app", From: 500, To: 2000}}}
	z := &Resize{Task: lifecycle.Task{Move: m, Purpose: lifecycle.Allocate}, Pod: pod, Mode: kube.ModeEnforce, At: b.Now()}
	return Request{Pod: uid, Namespace: namespace, Node: node, Priority: p, Value: z}
}

func exists(types.UID) bool { return true }

// TestALargerShareIsUsedAtOnce: no resize waits for the time that was right for a smaller share.
func TestALargerShareIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		b := newBench(flowcontrol.DefaultConfig(), func(*corev1.Pod) podresize.Result {
			sent.Add(1)
			return podresize.Result{Outcome: podresize.Accepted}
		})
		b.SetShare(0)
		go func() { _ = b.Start(t.Context()) }()
		list := []Request{b.resizeOf("a", "1", "n", flowcontrol.Needed), b.resizeOf("a", "2", "n", flowcontrol.Needed)}
		b.Replace("n", 1, append(list, b.resizeOf("a", "3", "n", flowcontrol.Needed)), exists)
		time.Sleep(time.Second)
		few := sent.Load()
		b.SetShare(1)
		if time.Sleep(time.Second); few > 1 || sent.Load() != 3 {
			t.Errorf("%d resizes with no share, then %d of 3", few, sent.Load())
		}
	})
}

// TestHangsAlone: while resizes behind hanging and dead webhooks, on the same node and under the default
// budgets, are not answered, healthy pods are resized as if there were none of them. A dead webhook fails one
// attempt after the other: each of the first two failures frees a worker for one more, and the third opens the
// breaker.
func TestHangsAlone(t *testing.T) {
	workers := int64(flowcontrol.DefaultConfig().NamespaceWorkers)
	for name, sick := range map[string]struct {
		pods     int
		fails    time.Duration // later than the attempt before
		attempts int64         // at most, until the breaker opens
	}{
		"none": {0, 0, 0}, "8 that hang": {8, podresize.Timeout, workers}, "32 that hang": {32, podresize.Timeout, workers},
		"150 that fail": {150, time.Millisecond, workers + 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var tries, underWay, most, healthy int64
				b := newBench(flowcontrol.DefaultConfig(), func(pod *corev1.Pod) podresize.Result {
					mu.Lock()
					defer mu.Unlock()
					if pod.Namespace == "healthy" {
						healthy++
						return podresize.Result{Outcome: podresize.Accepted}
					}
					tries++
					underWay++
					most = max(most, underWay)
					takes := time.Duration(tries) * sick.fails
					mu.Unlock()
					time.Sleep(takes) // of the clock of the bubble
					mu.Lock()
					underWay--
					return podresize.Result{Outcome: podresize.Unavailable, WebhookFailed: true}
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- b.Start(ctx) }()
				b.Replace("n", 1, nil, exists)
				time.Sleep(time.Minute) // the bursts are there
				var list []Request
				for i := range sick.pods {
					list = append(list, b.resizeOf("sick", fmt.Sprint(i), "n", flowcontrol.Needed))
				}
				for i := range 5 {
					list = append(list, b.resizeOf("healthy", fmt.Sprint(i), "n", flowcontrol.Needed))
				}
				b.Replace("n", 1, list, exists)
				synctest.Wait()
				mu.Lock()
				if healthy != 5 {
					t.Errorf("%d of 5 healthy pods are resized at once, beside %d attempts", healthy, tries)
				}
				mu.Unlock()
				time.Sleep(time.Second)
				cancel()
				synctest.Wait()
				mu.Lock()
				if most > workers || tries > sick.attempts {
					t.Errorf("%d attempts in one namespace, %d at once; want at most %d, %d at once", tries, most, sick.attempts, workers)
				}
				mu.Unlock()
				if sick.fails > time.Second {
					select {
					case <-ended:
						t.Error("ended while resizes are under way")
					default:
					}
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestManyHangAlone: while resizes of a hundred namespaces hang, for longer than a resize may take, each
// increase of a namespace whose resizes were answered is made at once, also when the hanging begins after
// they were answered, too.
func TestManyHangAlone(t *testing.T) {
	for name, answersFirst := range map[string]bool{"at first": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var healthy, sick, hanging, most atomic.Int64
				var hangs atomic.Bool
				var hung sync.Map // namespaces of which a resize has hung
				var distinct atomic.Int64
				b := newBench(flowcontrol.DefaultConfig(), func(pod *corev1.Pod) podresize.Result {
					if pod.Namespace == "healthy" {
						healthy.Add(1)
						return podresize.Result{Outcome: podresize.Accepted}
					}
					sick.Add(1)
					if !hangs.Load() {
						return podresize.Result{Outcome: podresize.Accepted}
					}
					most.Store(max(most.Load(), hanging.Add(1)))
					defer hanging.Add(-1)
					time.Sleep(podresize.Timeout)
					if _, again := hung.LoadOrStore(pod.Namespace, true); !again {
						distinct.Add(1)
					}
					return podresize.Result{Outcome: podresize.Unknown}
				})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- b.Start(ctx) }()
				n := 0
				offer := func(namespace string, pods int) {
					n++
					node, list := fmt.Sprint("n", n), []Request(nil)
					for i := range pods {
						list = append(list, b.resizeOf(namespace, fmt.Sprint(n, "-", i), node, flowcontrol.Needed))
					}
					b.Replace(node, 1000, list, exists)
				}
				offer("healthy", 1)
				time.Sleep(time.Minute) // the bursts are there
				all := func() {
					for i := range 100 {
						offer(fmt.Sprint("sick-", i), 5)
					}
				}
				if answersFirst {
					all()
					time.Sleep(time.Minute)
				}
				hangs.Store(true)
				all()
				for began := time.Now(); answersFirst && distinct.Load() < 100; time.Sleep(time.Second) {
					if time.Since(began) > time.Minute {
						t.Fatalf("resizes of %d of 100 namespaces have hung within a minute", distinct.Load())
					}
				}
				synctest.Wait()
				waited, made := 0, healthy.Load()
				for range 600 {
					offer("healthy", 1)
					synctest.Wait()
					if made++; healthy.Load() < made {
						waited++
						time.Sleep(2 * podresize.Timeout)
						synctest.Wait()
					}
					time.Sleep(100 * time.Millisecond)
				}
				if waited > 0 || sick.Load() < 100 || most.Load() < 16 {
					t.Errorf("%d of 600 wait beside %d attempts that hang, %d at once", waited, sick.Load(), most.Load())
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestLeavesUntried: what is blocked, of another mode, too old or held off by a breaker when its turn comes is
// not tried, costs no token, and its node is looked at again.
func TestLeavesUntried(t *testing.T) {
	for name, breaks := range map[string]func(b *bench, z *Resize){
		"moved":                     func(b *bench, z *Resize) { b.moved = z.Pod.Spec.NodeName },
		"blocked":                   func(b *bench, _ *Resize) { b.blocked = reasons.Paused },
		"blocked after the dry run": func(b *bench, _ *Resize) { b.dryRun = func() { b.blocked = reasons.Paused } },
		"of another mode":           func(b *bench, _ *Resize) { b.mode = "recommend" },
		"of another mode by now":    func(b *bench, _ *Resize) { b.dryRun = func() { b.mode = "restore" } },
		"without its namespace":     func(b *bench, _ *Resize) { b.gone = true },
		"too old":                   func(b *bench, z *Resize) { z.At = z.At.Add(-b.FreezeAfter) },
		"old together":              func(b *bench, z *Resize) { z.Age, z.At = b.FreezeAfter/2, z.At.Add(-b.FreezeAfter/2) },
		"held off":                  func(b *bench, _ *Resize) { b.Breakers.Refused("a", reasons.PermissionMissing, b.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			tries := 0
			c := flowcontrol.DefaultConfig()
			c.Burst, c.PerSecond, c.PerNode = 1, 1, 0 // one token
			b := newBench(c, func(*corev1.Pod) podresize.Result {
				tries++
				return podresize.Result{Outcome: podresize.Accepted}
			})
			r := b.resizeOf("a", "first", "n", flowcontrol.Needed)
			breaks(b, r.Value)
			b.Replace("n", 1, []Request{r}, exists)
			if !b.Step(t.Context()) || tries != 0 || len(b.answered) != 1 || b.audit.Len() != 0 {
				t.Fatalf("%d tries, answers of nodes %v, audit %s", tries, b.answered, b.audit)
			}
			z, ok := b.Take(r.Pod)
			if !ok || z.Answer != nil {
				t.Errorf("taken %v: %+v, want no answer", ok, z)
			}
			b.blocked, b.moved, b.dryRun, b.mode, b.gone = "", "", nil, "", false
			other := b.resizeOf("b", "second", "n", flowcontrol.Needed)
			b.Replace("n", 1, []Request{other}, exists)
			if !b.Step(t.Context()) || tries != 1 {
				t.Errorf("%d tries: the token was not returned", tries)
			}
		})
	}
}

// TestTheAuditRecordTellsTheWait: the wait is that since the pod came, however often it was decided since, and the age
// that since its agent decided. An increase that takes the place of a decrease which waits has not waited with it.
func TestTheAuditRecordTellsTheWait(t *testing.T) {
	b := newBench(flowcontrol.DefaultConfig(), func(*corev1.Pod) podresize.Result {
		return podresize.Result{Outcome: podresize.Accepted}
	})
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b.Now = func() time.Time { return now }
	for _, p := range []flowcontrol.Priority{flowcontrol.Decrease, flowcontrol.Decrease, flowcontrol.Idle, flowcontrol.Needed, flowcontrol.Needed} {
		request := b.resizeOf("shop", "web", "n", p)
		request.Value.ObservedAt = now.Add(-time.Second)
		b.Replace("n", 1, []Request{request}, exists)
		now = now.Add(2 * time.Second)
	}
	if !b.Step(t.Context()) || !strings.Contains(b.audit.String(), `"waited":6,"priority":"needed","age":3}`) {
		t.Errorf("want 6 s, of the priority needed, and an age of 3 s; the audit says %s", b.audit)
	}
}

// TestAnErrorIsAnAnswer: an error before a resize is sent is told, and is its answer, so that the pod backs
// off: before the dry run, and after it.
func TestAnErrorIsAnAnswer(t *testing.T) {
	for name, during := range map[string]bool{"at first": false, "during the dry run": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(flowcontrol.DefaultConfig(), func(*corev1.Pod) podresize.Result {
				t.Error("a resize was sent")
				return podresize.Result{Outcome: podresize.Accepted}
			})
			fails := func() { b.unknown = errors.New("the cache is not there") }
			if b.dryRun = fails; !during {
				fails()
			}
			r := b.resizeOf("a", "web", "n", flowcontrol.Needed)
			b.Replace("n", 1, []Request{r}, exists)
			b.Step(t.Context())
			z, _ := b.Take(r.Pod)
			if z.Answer == nil || z.Answer.Outcome != podresize.Unavailable || z.Answer.Sent || len(b.failed) != 1 || b.audit.Len() != 0 {
				t.Errorf("answer %+v, errors %v, audit %s", z.Answer, b.failed, b.audit)
			}
		})
	}
}

// TestAPanicIsAnAnswer: a panic under a resize is told, its outcome is unknown, and the attempt is in the
// audit log; the next resize is made.
func TestAPanicIsAnAnswer(t *testing.T) {
	b := newBench(flowcontrol.DefaultConfig(), func(pod *corev1.Pod) podresize.Result {
		if pod.Name == "bad" {
			panic("poison")
		}
		return podresize.Result{Outcome: podresize.Accepted}
	})
	bad, good := b.resizeOf("a", "bad", "n", flowcontrol.Needed), b.resizeOf("a", "good", "n", flowcontrol.Needed)
	b.Replace("n", 1, []Request{bad, good}, exists)
	for b.Step(t.Context()) {
	}
	z, _ := b.Take(bad.Pod)
	if z.Answer == nil || z.Answer.Outcome != podresize.Unknown || !z.Answer.Sent || len(b.failed) != 1 {
		t.Errorf("answer %+v, errors %v", z.Answer, b.failed)
	}
	if z, _ := b.Take(good.Pod); z.Answer == nil || z.Answer.Outcome != podresize.Accepted {
		t.Errorf("answer about the other %+v", z.Answer)
	}
	if n := strings.Count(b.audit.String(), "\n"); n != 2 {
		t.Errorf("%d audit lines, want 2", n)
	}
}

// TestAnswersAreTrimmed: of the pod that the API server answers with, only what decisions read is kept until the answer
// is taken.
func TestAnswersAreTrimmed(t *testing.T) {
	full := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "ns/p", Annotations: map[string]string{"large": "x"}, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubelet", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{}}`)},
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}}},
	}
	want := full.DeepCopy()
	kube.TrimPod(want)
	b := newBench(flowcontrol.DefaultConfig(), func(*corev1.Pod) podresize.Result {
		return podresize.Result{Outcome: podresize.Accepted, Pod: full.DeepCopy()}
	})
	b.Replace("n", 1, []Request{b.resizeOf("ns", "p", "n", flowcontrol.Needed)}, exists)
	b.Step(t.Context())
	if z, ok := b.Take("ns/p"); !ok || !reflect.DeepEqual(z.Answer.Pod, want) || reflect.DeepEqual(full, want) {
		t.Errorf("the answer keeps %+v", z.Answer.Pod)
	}
}

// TestTokensOfOutcomes: a resize that changes nothing gives its token back.
func TestTokensOfOutcomes(t *testing.T) {
	for o := podresize.Accepted; o <= podresize.NoDryRun; o++ {
		if (podresize.Result{Outcome: o}).MayHaveChanged() != (o == podresize.Accepted || o == podresize.Unknown) {
			t.Errorf("%v gives its token back, or not", o)
		}
	}
}
