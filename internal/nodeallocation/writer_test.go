package nodeallocation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// world is a node in an API server in memory, and a writer whose cache may be late. What the real one makes of
// a NodeAllocation: TestSchema (config).
type world struct {
	*testing.T
	*Writer
	api    client.WithWatch
	node   *corev1.Node
	now    time.Time
	shown  *v1alpha1.NodeAllocation // what the cache shows while it is late
	late   bool
	writes int
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, node: &corev1.Node{}, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	var err error
	config := memapi.Config(memapi.New(func() time.Time { return w.now }), "test")
	w.api, err = client.NewWithWatch(config, client.Options{Scheme: memapi.Scheme, Mapper: memapi.Mapper()})
	must.Succeed(w, err)
	w.node.Name = "n1"
	must.Succeed(w, w.api.Create(t.Context(), w.node))
	w.Writer = w.writer(interceptor.NewClient(w.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if !w.late {
				return c.Get(ctx, key, o, opts...)
			}
			if w.shown == nil {
				return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("nodeallocations").GroupResource(), key.Name)
			}
			w.shown.DeepCopyInto(o.(*v1alpha1.NodeAllocation))
			return nil
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writes++
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.writes++
			return c.Patch(ctx, o, p, opts...)
		},
	}))
	return w
}

func (w *world) writer(c client.Client) *Writer {
	return &Writer{Client: c, Now: func() time.Time { return w.now }, Served: func() bool { return true }, Tenure: func(string) int { return 0 }}
}

// stored is the NodeAllocation in the API server.
func (w *world) stored() *v1alpha1.NodeAllocation {
	o := &v1alpha1.NodeAllocation{}
	if err := w.api.Get(context.Background(), types.NamespacedName{Name: w.node.Name}, o); client.IgnoreNotFound(err) != nil {
		w.Error(err)
	}
	o.Name = w.node.Name
	return o
}

func pod(uid types.UID, ceiling cpu.Milli) v1alpha1.NodePod {
	p := v1alpha1.NodePod{UID: uid, AllocationUID: "pa-" + uid, DeclaredLimits: []v1alpha1.ContainerLimit{{Name: "app", CPULimit: 500}}}
	if ceiling > 0 {
		p.Constraints = &v1alpha1.Constraints{Ceiling: &ceiling}
	}
	return p
}

// tell tells these pods, and asserts how many writes that takes.
func (w *world) tell(writes int, pods ...v1alpha1.NodePod) {
	w.Helper()
	before := w.writes
	_, err := w.Tell(w.Context(), w.node.Name, w.node.UID, pods)
	must.Succeed(w, err)
	if n := w.writes - before; n != writes {
		w.Errorf("%d writes, want %d", n, writes)
	}
}

// told asserts what the agent is known to be told.
func (w *world) told(want ...types.UID) Told {
	w.Helper()
	told, err := w.Told(w.Context(), w.node.Name)
	must.Succeed(w, err)
	if len(told) != len(want) {
		w.Errorf("told %d pods, want %v", len(told), want)
	}
	for _, uid := range want {
		if told[uid] == nil {
			w.Errorf("not told of %s", uid)
		}
	}
	return told
}

// TestWritesOnlyChanges: what is told already is not written again, in whatever order it comes; a node
// without managed pods gets no object, and one that was made anew owns its own.
func TestWritesOnlyChanges(t *testing.T) {
	w := newWorld(t)
	w.tell(0)
	w.told()
	w.tell(1, pod("b", 0), pod("a", 700))
	w.tell(0, pod("a", 700), pod("b", 0))
	if c := w.told("a", "b").Constraints("a"); *c.Ceiling != 700 || w.told("a", "b").Constraints("b") != nil {
		t.Errorf("constraints %+v", c)
	}
	w.tell(1, pod("a", 800), pod("b", 0))
	w.tell(1, pod("a", 800))
	w.tell(1)
	w.tell(0)
	w.told()
	o := w.stored()
	if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != w.node.UID || len(o.Spec.Pods) != 0 {
		t.Errorf("stored %+v", o)
	}
	w.node.UID = "made-anew"
	w.tell(1, pod("a", 0))
	if o := w.stored(); len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != "made-anew" || len(o.Spec.Pods) != 1 {
		t.Errorf("stored %+v", o)
	}
}

// TestToldIsKnownAtOnce: what was written is known before the cache shows it.
func TestToldIsKnownAtOnce(t *testing.T) {
	w := newWorld(t)
	w.late = true
	w.tell(1, pod("a", 0))
	w.told("a")
	w.tell(0, pod("a", 0))
	w.tell(1, pod("a", 0), pod("b", 0))
	w.shown = w.stored()
	w.tell(1, pod("b", 0))
	w.told("b")
	w.late = false
	w.told("b")
	w.tell(0, pod("b", 0))
}

// TestDeletedIsWrittenAgain: a NodeAllocation that another client deletes is created again, once the cache
// had the time to show that it was created.
func TestDeletedIsWrittenAgain(t *testing.T) {
	w := newWorld(t)
	w.tell(1, pod("a", 0))
	must.Succeed(w, w.api.Delete(t.Context(), w.stored()))
	w.told("a")
	w.now = w.now.Add(kube.CacheLag)
	w.told()
	w.tell(1, pod("a", 0))
	if n := len(w.stored().Spec.Pods); n != 1 {
		t.Errorf("%d pods stored, want 1", n)
	}
}

// TestForgetsWhatTheCacheShows: what the cache does not show for five minutes is from before a restore of
// the store. The agent is told of it anew.
func TestForgetsWhatTheCacheShows(t *testing.T) {
	w := newWorld(t)
	w.tell(1, pod("a", 0))
	w.late, w.shown = true, w.stored()
	w.tell(1, pod("a", 0), pod("b", 0))
	w.told("a", "b")
	w.now = w.now.Add(30 * kube.CacheLag)
	w.told("a", "b")
	w.now = w.now.Add(time.Second)
	w.told("a")
}

// TestOldWriterIsRefused: a writer that has not seen the newest version changes nothing, and then
// learns it.
func TestOldWriterIsRefused(t *testing.T) {
	w := newWorld(t)
	w.tell(1, pod("a", 0))
	w.late, w.shown = true, w.stored()
	other := w.writer(w.api)
	_, err := other.Tell(t.Context(), w.node.Name, w.node.UID, []v1alpha1.NodePod{pod("a", 900)})
	must.Succeed(w, err)
	if _, err := w.Tell(t.Context(), w.node.Name, w.node.UID, []v1alpha1.NodePod{pod("b", 0)}); !apierrors.IsConflict(err) {
		t.Errorf("an old writer gets %v, want a conflict", err)
	}
	if p := w.stored().Spec.Pods; len(p) != 1 || p[0].Constraints == nil || *p[0].Constraints.Ceiling != 900 {
		t.Errorf("stored %+v, want what the newer one wrote", p)
	}
	w.late = false
	w.tell(1, pod("b", 0))
	if p := w.stored().Spec.Pods; len(p) != 1 || p[0].UID != "b" {
		t.Errorf("stored %+v", p)
	}
}

// TestContestsAreErrors: what another writer has changed since is not changed back at once. The caller has a back-off.
func TestContestsAreErrors(t *testing.T) {
	w := newWorld(t)
	other := w.writer(w.api)
	tell := func(by *Writer, contested bool, ceiling cpu.Milli) {
		t.Helper()
		_, err := by.Tell(t.Context(), w.node.Name, w.node.UID, []v1alpha1.NodePod{pod("a", ceiling)})
		if errors.Is(err, kube.ErrContested) != contested || !contested && err != nil {
			t.Errorf("contested %v: %v", contested, err)
		}
	}
	tell(w.Writer, false, 700)
	tell(w.Writer, false, 800) // its own
	tell(other, false, 900)
	tell(w.Writer, false, 900) // as it is told
	tell(w.Writer, true, 1000)
	if c := w.stored().Spec.Pods[0].Constraints; *c.Ceiling != 900 {
		t.Errorf("stored %+v", c)
	}
	tell(w.Writer, false, 1000)
	tell(other, true, 1100)
	w.Drop(w.node.Name) // it does not exist for a while
	other.Drop(w.node.Name)
	tell(other, false, 1100)
	tell(w.Writer, false, 1000)
	tell(other, true, 900)
	if c := w.stored().Spec.Pods[0].Constraints; *c.Ceiling != 900 {
		t.Errorf("stored %+v, want the lower ceiling at once", c)
	}
}

// TestMetadataIsNoContest: another client may write what the agent is not told, as tools that label and annotate all
// objects do.
func TestMetadataIsNoContest(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.tell(1, pod("a", cpu.Milli(700+i)))
		must.Succeed(w, w.api.Patch(t.Context(), w.stored(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
			`{"metadata":{"annotations":{"synced":"%d"},"ownerReferences":[`+
				`{"apiVersion":"v1","kind":"Node","name":%q,"uid":%q},{"apiVersion":"v1","kind":"Namespace","name":"n","uid":"%d"}]}}`,
			i, w.node.Name, w.node.UID, i))))
	}
	w.tell(1, pod("a", 800))
}

// TestANewTenureIsNoContest: what another replica wrote while it owned the node is no contest.
func TestANewTenureIsNoContest(t *testing.T) {
	w := newWorld(t)
	tenure := 1
	w.Tenure = func(string) int { return tenure }
	other := w.writer(w.api)
	w.tell(1, pod("a", 700))
	_, err := other.Tell(t.Context(), w.node.Name, w.node.UID, []v1alpha1.NodePod{pod("a", 800)})
	must.Succeed(w, err)
	tenure++
	w.tell(1, pod("a", 700))
}

// TestTightensInContest: what only tightens constraints is told in spite of another writer.
func TestTightensInContest(t *testing.T) {
	w := newWorld(t)
	other := w.writer(w.api)
	keep := func(p v1alpha1.NodePod, why string) v1alpha1.NodePod {
		if p.Constraints == nil {
			p.Constraints = &v1alpha1.Constraints{}
		}
		p.Constraints.NoDecrease = why
		return p
	}
	w.tell(1, pod("a", 700), pod("b", 700), pod("c", 700))
	_, err := other.Tell(t.Context(), w.node.Name, w.node.UID, []v1alpha1.NodePod{pod("a", 0), pod("b", 600), pod("d", 500)})
	must.Succeed(w, err)
	mine := []v1alpha1.NodePod{keep(pod("a", 700), "UnhealthyAfterDecrease"), pod("b", 700), pod("c", 700), pod("d", 900)}
	before := w.writes
	for range 3 {
		if _, err := w.Tighten(t.Context(), w.node.Name, w.node.UID, mine); err != nil {
			t.Error(err)
		}
	}
	if n := w.writes - before; n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	told := w.told("a", "b", "d") // no pod comes or goes
	if c := told.Constraints("a"); c == nil || c.NoDecrease != "UnhealthyAfterDecrease" || c.Ceiling == nil || *c.Ceiling != 700 {
		t.Errorf("constraints %+v, want both", c)
	}
	if b, d := told.Constraints("b"), told.Constraints("d"); *b.Ceiling != 600 || *d.Ceiling != 500 {
		t.Errorf("ceilings %v and %v, want the lower ones", *b.Ceiling, *d.Ceiling)
	}
}

// TestLeavesOutTheRefused: a pod whose value the API server refuses is left out, or stays as it is stored, until its back-off ends. The
// others are published at once, whether the NodeAllocation is there or not.
func TestLeavesOutTheRefused(t *testing.T) {
	w, largest := newWorld(t), cpu.Largest
	refuse := func(o *v1alpha1.NodeAllocation) error {
		for i, p := range o.Spec.Pods {
			if c := p.Constraints; c != nil && c.Ceiling != nil && *c.Ceiling > largest {
				path := field.NewPath("spec", "pods").Index(i).Child("constraints", "ceiling")
				return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("NodeAllocation").GroupKind(), o.Name,
					field.ErrorList{{Type: field.ErrorTypeTooLong, Field: path.String(), BadValue: c.Ceiling.String()}})
			}
		}
		return nil
	}
	w.Writer = w.writer(interceptor.NewClient(w.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writes++
			if err := refuse(o.(*v1alpha1.NodeAllocation)); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.writes++
			body, err := p.Data(o)
			must.Succeed(w, err)
			sent := &v1alpha1.NodeAllocation{}
			must.Succeed(w, json.Unmarshal(body, sent))
			if sent.Name = o.GetName(); refuse(sent) != nil {
				return refuse(sent)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}))
	was := ""
	tell := func(after time.Duration, writes int, refused, unpublished string, pods ...v1alpha1.NodePod) {
		t.Helper()
		before := w.writes
		w.now = w.now.Add(after)
		again, err := w.Tell(t.Context(), w.node.Name, w.node.UID, pods)
		var r *Refused
		if errors.As(err, &r) != (refused != "") || r != nil && (r.Rest != nil || joined(r.Pods) != refused || !strings.Contains(err.Error(), "ceiling")) {
			t.Errorf("error %v, want %q refused", err, refused)
		}
		if w.writes-before != writes {
			t.Errorf("%d writes, want %d", w.writes-before, writes)
		}
		var out []types.UID
		for _, p := range pods {
			if w.Unpublished("n1", p.UID) {
				out = append(out, p.UID)
			}
		}
		if joined(out) != unpublished || again.After(w.now) != (unpublished+was != "") || again.Sub(w.now) > refusedMost*11/10 {
			t.Errorf("%q are unpublished, and tried again at %v; want %q", joined(out), again, unpublished)
		}
		if was != unpublished && again.Sub(w.now) > time.Second {
			t.Errorf("the statuses wait until %v", again)
		}
		was = unpublished
	}
	told := func(want string) {
		t.Helper()
		var uids []types.UID
		for _, p := range w.stored().Spec.Pods {
			uids = append(uids, p.UID)
		}
		if joined(uids) != want {
			t.Errorf("published %s, want %s", joined(uids), want)
		}
	}
	odd := func(uid types.UID, by cpu.Milli) v1alpha1.NodePod {
		p := pod(uid, 500)
		p.Constraints = &v1alpha1.Constraints{Ceiling: new(cpu.Largest + by)}
		return p
	}
	const s, m = time.Second, time.Minute
	a, b, c, e, f := pod("a", 500), odd("b", 1), pod("c", 500), pod("e", 500), pod("f", 500)
	tell(m, 3, "b, d", "b, d", a, b, c, odd("d", 1)) // one at a time is named
	told("a, c")
	tell(s, 0, "", "b, d", a, b, c, odd("d", 1))
	tell(s, 1, "", "b, d", a, b, c, odd("d", 1), e) // a neighbour comes
	told("a, c, e")
	c = pod("c", 600)
	tell(s, 1, "", "b, d", a, odd("b", 2), c, odd("d", 1), e) // another value does not end a back-off
	tell(m, 2, "b, d", "b, d", a, odd("b", 2), c, odd("d", 1), e)
	tell(12*s, 0, "", "b", a, odd("b", 3), c, e) // the second back-off is longer; d is gone
	b = odd("b", 0)
	tell(m, 1, "", "", a, b, c, e) // mended
	told("a, b, c, e")
	tell(m, 1, "a", "a", odd("a", 1), b, c, e) // what is stored of it stays
	told("a, b, c, e")
	tell(s, 0, "", "", a, b, c, e) // as it is stored
	for n, wait := 0, refusedFirst; n < 10; n, wait = n+1, min(2*wait, refusedMost) {
		tell(s, 1, "a", "a", odd("a", 1), b, c, e)
		tell(wait-2*s, 0, "", "a", odd("a", 2), b, c, e)
		w.now = w.now.Add(wait / 5)
	}
	largest-- // the schema of another version, by which what is stored of b is wrong
	tell(refusedMost, 3, "b", "b", a, b, c, e, f)
	told("a, c, e, f")
	tell(s, 0, "", "b", a, b, c, e, f)
	a = odd("a", 1)
	a.AllocationUID = "anew"
	tell(s, 2, "a", "a", a, c, e, f) // what is stored is of another PodAllocation
	told("c, e, f")
}

// TestARefusalEndsWithItsValue: it ends when the value of its pod is published, and not with a write about others. Nothing asks to be
// called again at a time that has passed.
func TestARefusalEndsWithItsValue(t *testing.T) {
	w := newWorld(t)
	w.Writer = w.writer(interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			body, err := p.Data(o)
			sent := &v1alpha1.NodeAllocation{}
			must.Succeed(t, errors.Join(err, json.Unmarshal(body, sent)))
			if i := slices.IndexFunc(sent.Spec.Pods, func(p v1alpha1.NodePod) bool { return p.Constraints.IncreaseOnNeed }); i >= 0 {
				path := field.NewPath("spec", "pods").Index(i).Child("constraints", "ceiling")
				return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("NodeAllocation").GroupKind(), o.GetName(),
					field.ErrorList{{Type: field.ErrorTypeTooLong, Field: path.String()}})
			}
			w.now = w.now.Add(30 * time.Second) // it takes long
			return c.Patch(ctx, o, p, opts...)
		},
	}))
	w.tell(0, pod("a", 500), pod("b", 500))
	odd := pod("b", 500)
	odd.Constraints = &v1alpha1.Constraints{IncreaseOnNeed: true} // which tightens nothing
	for i, uid := range []types.UID{w.node.UID, w.node.UID, ""} { // refused; a neighbour changes; the Node is gone
		w.now = w.now.Add(time.Second)
		again, err := w.Tell(t.Context(), w.node.Name, uid, []v1alpha1.NodePod{pod("a", cpu.Milli(500+100*i)), odd})
		if !w.Unpublished("n1", "b") || !again.IsZero() && !again.After(w.now) {
			t.Errorf("call %d: %v; again at %v, it is %v", i, err, again, w.now)
		}
	}
	if _, err := w.Tighten(t.Context(), w.node.Name, w.node.UID, []v1alpha1.NodePod{pod("a", 500), odd}); err != nil || !w.Unpublished("n1", "b") {
		t.Errorf("Tighten publishes what only tightens, and says that all is published (%v)", err)
	}
}

// TestARefusalInAContest: it hides no contest, and counts where the others are published as Tighten says.
func TestARefusalInAContest(t *testing.T) {
	w := newWorld(t)
	refuses := true
	w.Writer = w.writer(interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if refuses {
				path := field.NewPath("spec", "pods").Index(0).Child("constraints", "ceiling")
				return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("NodeAllocation").GroupKind(), o.GetName(),
					field.ErrorList{{Type: field.ErrorTypeTooLong, Field: path.String()}})
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}))
	refuses = false
	w.tell(0, pod("a", 500), pod("b", 500))
	other := w.stored()
	other.Spec.Pods = other.Spec.Pods[:1]
	must.Succeed(t, w.api.Update(t.Context(), other))
	refuses = true
	lower := pod("a", 500)
	lower.Constraints = &v1alpha1.Constraints{Ceiling: new(cpu.Milli(400))}
	w.now = w.now.Add(time.Minute)
	_, err := w.Tell(t.Context(), w.node.Name, w.node.UID, []v1alpha1.NodePod{lower, pod("b", 500)})
	var refused *Refused
	if !errors.As(err, &refused) || !errors.Is(refused.Rest, kube.ErrContested) || !w.Unpublished(w.node.Name, "a") {
		t.Errorf("error %v (%+v), unpublished %v; want a refusal and a contest", err, refused, w.Unpublished(w.node.Name, "a"))
	}
}

// TestSizeOf: a pod takes no more than that, and not much less where it has much.
func TestSizeOf(t *testing.T) {
	text, most := strings.Repeat("n", 63), cpu.Largest
	full := v1alpha1.NodePod{UID: types.UID(text), AllocationUID: types.UID(text), Constraints: &v1alpha1.Constraints{
		Ceiling: &most, FloorBy: text, CeilingBy: text, IncreaseOnNeed: true, NoDecrease: text, DemandBy: text,
		CoordinationPercent: new(int32(400)), DemandPercent: new(int32(1000)),
	}}
	for i := range v1alpha1.MaxContainers {
		name := fmt.Sprint(text, i)
		full.DeclaredLimits = append(full.DeclaredLimits, v1alpha1.ContainerLimit{Name: name, CPULimit: most})
		full.Constraints.Containers = append(full.Constraints.Containers, v1alpha1.ContainerConstraints{Name: name, Floor: &most, Ceiling: &most})
	}
	for _, p := range []v1alpha1.NodePod{{}, pod("a", 500), full} {
		text, err := json.Marshal(&p)
		if size := sizeOf(&p); err != nil || size < len(text)+1 || len(p.DeclaredLimits) > 1 && size > 2*len(text) {
			t.Errorf("%d bytes, said to be %d at most (%v)", len(text), size, err)
		}
	}
}

// TestManyPods: of more pods than an object takes, by number or by size, the largest are left out, and named.
func TestManyPods(t *testing.T) {
	large := func(p v1alpha1.NodePod) v1alpha1.NodePod {
		p.DeclaredLimits = nil
		for i := range v1alpha1.MaxContainers {
			name := fmt.Sprintf("%s-%02d", strings.Repeat("c", 60), i)
			p.DeclaredLimits = append(p.DeclaredLimits, v1alpha1.ContainerLimit{Name: name, CPULimit: 500})
		}
		return p
	}
	for name, c := range map[string]struct{ pods, large int }{
		"by number": {v1alpha1.MaxNodePods + 10, 0}, "by size": {300, 250},
	} {
		w := newWorld(t)
		var pods []v1alpha1.NodePod
		for i := range c.pods {
			p := pod(types.UID(fmt.Sprintf("%05d", i)), 500)
			if i < c.large {
				p = large(p)
			}
			pods = append(pods, p)
		}
		var refused *Refused
		_, err := w.Tell(t.Context(), w.node.Name, w.node.UID, slices.Clone(pods))
		stored := w.stored().Spec.Pods
		text, _ := json.Marshal(stored)
		switch {
		case !errors.As(err, &refused) || refused.Rest != nil || len(refused.Pods)+len(stored) != c.pods:
			t.Errorf("%s: %d pods stored of %d: %v", name, len(stored), c.pods, err)
		case len(stored) > v1alpha1.MaxNodePods || len(text) > maxBytes+2 || len(refused.Pods) > c.pods/2 || c.large > 0 && len(text) < maxBytes/2:
			t.Errorf("%s: %d pods stored, %d bytes", name, len(stored), len(text))
		case storedPod(w.stored(), pods[c.large].UID) == nil || !w.Unpublished(w.node.Name, refused.Pods[0]):
			t.Errorf("%s: a small pod is left out, or a large one does not count as refused", name)
		}
		if again, err := w.Tell(t.Context(), w.node.Name, w.node.UID, pods); err != nil || !again.IsZero() {
			t.Errorf("%s: the same pods once more: again at %v, %v; want nothing more to do", name, again, err)
		}
		w.tell(0, stored...)
		if w.Unpublished(w.node.Name, refused.Pods[0]) {
			t.Errorf("%s: a pod that is not to be told of any more counts as refused", name)
		}
	}
}

// TestLessIsStored: what the API server drops of a write is not written again and again, and is once something
// else changes.
func TestLessIsStored(t *testing.T) {
	w := newWorld(t)
	w.Writer = w.writer(interceptor.NewClient(w.api, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			w.writes++
			o.(*v1alpha1.NodeAllocation).Spec.Pods[0].Constraints = nil // as a CRD without that field does
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.writes++
			body, err := p.Data(o)
			must.Succeed(w, err)
			body = []byte(strings.ReplaceAll(string(body), `"constraints":{"ceiling":"700m"}`, `"constraints":null`))
			return c.Patch(ctx, o, client.RawPatch(p.Type(), body), opts...)
		},
	}))
	w.tell(1, pod("a", 700))
	w.tell(0, pod("a", 700))
	w.tell(1, pod("a", 700), pod("b", 0))
	w.tell(0, pod("a", 700), pod("b", 0))
	w.tell(1, pod("a", 800), pod("b", 0))
	if c := w.told("a", "b").Constraints("a"); c == nil || *c.Ceiling != 800 {
		t.Errorf("constraints %+v, want what is stored", c)
	}
	w.tell(1, pod("a", 700), pod("b", 0))
	must.Succeed(w, w.api.Delete(t.Context(), w.stored()))
	w.now = w.now.Add(kube.CacheLag)
	w.tell(1, pod("a", 700))
	w.tell(0, pod("a", 700))
}

// TestOneWriteForManyPods: pods that come one after another are told together, the first at once and the
// others a moment later; what is told already is never asked for again.
func TestOneWriteForManyPods(t *testing.T) {
	w := newWorld(t)
	w.Interval = 200 * time.Millisecond
	ask := func(n, writes int, wait time.Duration) {
		t.Helper()
		var pods []v1alpha1.NodePod
		for i := range n {
			pods = append(pods, pod(types.UID(fmt.Sprint("pod-", i)), 0))
		}
		before := w.writes
		again, err := w.Tell(t.Context(), w.node.Name, w.node.UID, pods)
		must.Succeed(w, err)
		want := time.Time{}
		if wait > 0 {
			want = w.now.Add(wait)
		}
		if got := w.writes - before; got != writes || !again.Equal(want) {
			t.Errorf("%d pods: %d writes, again at %v, want %d and %v", n, got, again, writes, want)
		}
	}
	ask(1, 1, 0)
	for n := 2; n <= 10; n++ {
		w.now = w.now.Add(20 * time.Millisecond)
		ask(n, 0, w.Interval-time.Duration(n-1)*20*time.Millisecond)
	}
	ask(1, 0, 0) // as it is told
	w.now = w.now.Add(20 * time.Millisecond)
	ask(10, 1, 0)
	ask(10, 0, 0)
	w.now = w.now.Add(-time.Hour) // the clock was set back
	ask(11, 1, 0)
}
