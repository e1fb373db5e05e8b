package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/atlength"
)

// api holds Leases as the API server does: resource versions, conflicts, and requests whose answer is late or lost.
type api struct {
	client.Client // every other request is a failure of the test
	mu            *sync.Mutex
	leases        map[string]coordinationv1.Lease
	version       *int
	// delay is how long a request of this replica takes before and after it has its effect.
	delay func() (before, after time.Duration)
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// do has a request take its time; f is its effect, which comes even if the client gave up before.
func (a api) do(ctx context.Context, f func() error) error {
	before, after := a.delay()
	result := make(chan error, 1)
	go func() {
		time.Sleep(before)
		a.mu.Lock()
		err := f()
		a.mu.Unlock()
		time.Sleep(after)
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a api) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	to := o.(*coordinationv1.Lease)
	var found coordinationv1.Lease
	err := a.do(ctx, func() error {
		l, ok := a.leases[key.Name]
		if !ok {
			return apierrors.NewNotFound(leases, key.Name)
		}
		found = l
		return nil
	})
	if err == nil {
		found.DeepCopyInto(to)
	}
	return err
}

func (a api) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	var found []coordinationv1.Lease
	err := a.do(ctx, func() error {
		for l := range maps.Values(a.leases) {
			found = append(found, l)
		}
		return nil
	})
	if err == nil {
		list.(*coordinationv1.LeaseList).Items = found
	}
	return err
}

func (a api) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return a.put(ctx, o.(*coordinationv1.Lease), "")
}

func (a api) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return a.put(ctx, o.(*coordinationv1.Lease), o.GetResourceVersion())
}

func (a api) put(ctx context.Context, l *coordinationv1.Lease, version string) error {
	sent := *l.DeepCopy()
	var stored string
	err := a.do(ctx, func() error {
		if a.leases[sent.Name].ResourceVersion != version {
			return apierrors.NewConflict(leases, sent.Name, errors.New("changed"))
		}
		*a.version++
		stored = strconv.Itoa(*a.version)
		sent.ResourceVersion = stored
		a.leases[sent.Name] = sent
		return nil
	})
	if err == nil {
		l.ResourceVersion = stored
	}
	return err
}

func (a api) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	return a.do(ctx, func() error {
		l, ok := a.leases[o.GetName()]
		switch {
		case !ok:
			return apierrors.NewNotFound(leases, o.GetName())
		case options.Preconditions != nil && *options.Preconditions.ResourceVersion != l.ResourceVersion:
			return apierrors.NewConflict(leases, o.GetName(), errors.New("changed"))
		}
		delete(a.leases, o.GetName())
		return nil
	})
}

// cluster is a set of replicas and the nodes that they divide.
type cluster struct {
	t     *testing.T
	api   api
	nodes []string

	mu       sync.Mutex
	replicas map[string]*running
}

type running struct {
	*Replica
	crash, stop context.CancelFunc
	cut         atomic.Bool // requests get lost
}

func newCluster(t *testing.T, nodes int) *cluster {
	c := &cluster{t: t, replicas: map[string]*running{}}
	c.api = api{mu: new(sync.Mutex), leases: map[string]coordinationv1.Lease{}, version: new(int)}
	for i := range nodes {
		c.nodes = append(c.nodes, fmt.Sprintf("node-%d", i))
	}
	t.Cleanup(func() {
		for _, r := range c.replicas {
			r.crash()
		}
		time.Sleep(2 * time.Hour) // the requests that are on their way
	})
	return c
}

// start starts a replica; delay is what each of its requests takes.
func (c *cluster) start(
	name string, delay func() (before, after time.Duration), change ...func(*Replica),
) *running {
	r := &running{}
	link := c.api
	link.delay = func() (time.Duration, time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.cut.Load() {
			return time.Hour, 0
		}
		return delay()
	}
	r.Replica = New(link, "mbcas-system", name, slog.New(slog.DiscardHandler))
	for _, f := range change {
		f(r.Replica)
	}
	ctx, stop := context.WithCancel(c.t.Context())
	r.stop = stop
	r.crash = func() { // as a process that ends: no request any more, and it owns nothing
		c.mu.Lock()
		r.cut.Store(true)
		c.mu.Unlock()
		stop()
	}
	go func() { _ = r.Start(ctx) }()
	c.mu.Lock()
	c.replicas[name] = r
	c.mu.Unlock()
	return r
}

// owners are the owner of each node; it fails the test for a node with two.
func (c *cluster) owners() map[string]string {
	c.mu.Lock()
	replicas := maps.Clone(c.replicas)
	c.mu.Unlock()
	owners := map[string]string{}
	for name, r := range replicas {
		for _, node := range c.nodes {
			if !r.Owns(node) {
				continue
			}
			if other := owners[node]; other != "" {
				c.t.Fatalf("%s is owned by %s and by %s", node, other, name)
			}
			owners[node] = name
		}
	}
	return owners
}

func quick() (before, after time.Duration) { return time.Millisecond, time.Millisecond }

// TestOneOwner: with MBCAS_LONG=1 through ten times as many histories.
func TestOneOwner(t *testing.T) {
	for seed := range uint64(atlength.Of(50, 500)) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			draw := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			// Most answers are quick, some late, and some come after the client gave up, with or without an effect.
			slow := func() (before, after time.Duration) {
				d := []time.Duration{
					time.Millisecond, 20 * time.Millisecond, time.Second, 1900 * time.Millisecond,
					4 * time.Second, 5 * time.Second, 7 * time.Second,
				}
				at := func() time.Duration {
					if draw(4) > 0 {
						return d[0]
					}
					return d[draw(len(d))]
				}
				return at(), at()
			}
			c := newCluster(t, 6)
			owned := 0
			next := 0
			begin := func() {
				r := c.start(fmt.Sprintf("replica-%d", next), slow)
				for _, node := range c.nodes {
					r.ObserveNode(node, true)
				}
				next++
			}
			for range 3 {
				begin()
			}
			tenures := tenures{t: t, last: map[string]string{}, of: map[string]map[string]tenure{}}
			for range 3000 { // five minutes
				time.Sleep(time.Duration(1+draw(200)) * time.Millisecond)
				owners := c.owners()
				owned += len(owners)
				tenures.check(c, owners)
				names := []string{}
				for name := range c.replicas {
					names = append(names, name)
				}
				if len(names) == 0 || draw(200) > 0 {
					if len(names) < 3 && draw(30) == 0 {
						begin()
					}
					continue
				}
				r := c.replicas[names[draw(len(names))]]
				switch draw(3) {
				case 0:
					r.crash()
					delete(c.replicas, r.Name)
				case 1:
					r.stop()
					delete(c.replicas, r.Name)
				case 2:
					c.mu.Lock()
					r.cut.Store(!r.cut.Load())
					c.mu.Unlock()
				}
			}
			if owned == 0 {
				t.Errorf("seed %d: no node had an owner at any time", seed)
			}
		})
	}
}

// tenure is what a replica said of one when it owned a node last, and whether another has owned it since.
type tenure struct {
	number int
	other  bool
}

// tenures holds replicas to a new tenure of each node that another one has owned.
type tenures struct {
	t    *testing.T
	last map[string]string            // the owner of each node, when it had one last
	of   map[string]map[string]tenure // by node and replica
}

func (ts *tenures) check(c *cluster, owners map[string]string) {
	ts.t.Helper()
	for node, name := range owners {
		known := ts.of[node]
		if known == nil {
			known = map[string]tenure{}
			ts.of[node] = known
		}
		now := c.replicas[name].Tenure(node)
		if was, ok := known[name]; ok && was.other && was.number == now {
			ts.t.Fatalf("%s owns %s again, which another replica owned meanwhile, in tenure %d as before", name, node, now)
		}
		known[name] = tenure{number: now}
		if ts.last[node] == name {
			continue
		}
		ts.last[node] = name
		for other, last := range known {
			if other != name {
				last.other = true
				known[other] = last
			}
		}
	}
}

// TestAHiccupMovesNothing: while the API server answers no list or no renewal, a replica takes none of its
// nodes for another's. After a short time it owns them in the same tenure: no other replica owned them.
func TestAHiccupMovesNothing(t *testing.T) {
	for name, hiccup := range map[string]struct {
		lists, renewals bool
		lasts           time.Duration
		anew            bool
	}{
		"lists, briefly":    {lists: true, lasts: 3 * time.Second},
		"lists, longer":     {lists: true, lasts: 20 * time.Second, anew: true},
		"renewals, briefly": {renewals: true, lasts: 3 * time.Second},
		"renewals, longer":  {renewals: true, lasts: 20 * time.Second, anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 20)
				var cut atomic.Bool
				a := c.start("a", quick, func(r *Replica) {
					r.API = flaky{r.API, func(list bool) bool { return cut.Load() && (list && hiccup.lists || !list && hiccup.renewals) }}
				})
				b := c.start("b", quick)
				time.Sleep(20 * time.Second)
				mine := map[string]int{}
				for _, node := range c.nodes {
					a.ObserveNode(node, true)
					if a.Owns(node) {
						mine[node] = a.Tenure(node)
					}
				}
				if len(mine) == 0 || len(mine) == len(c.nodes) {
					t.Fatalf("a owns %d of %d nodes", len(mine), len(c.nodes))
				}
				cut.Store(true)
				lapsed := false
				for begun := time.Now(); time.Since(begun) < hiccup.lasts+30*time.Second; time.Sleep(100 * time.Millisecond) {
					if time.Since(begun) > hiccup.lasts {
						cut.Store(false)
					}
					c.owners()
					for node := range mine {
						switch a.Ownership(node) {
						case OwnedByOther:
							t.Fatalf("a takes %s for another replica's", node)
						case Unknown:
							lapsed = true
						}
						if b.Owns(node) && !hiccup.anew {
							t.Fatalf("b owns %s", node)
						}
					}
				}
				for node, tenure := range mine {
					if !a.Owns(node) || (a.Tenure(node) != tenure) != hiccup.anew {
						t.Errorf("%s: owned %v, tenure %d, was %d", node, a.Owns(node), a.Tenure(node), tenure)
					}
				}
				if !lapsed && hiccup.lasts > viewTrusted {
					t.Error("a owned its nodes all the time")
				}
			})
		})
	}
}

// flaky is an API server that does not answer some requests.
type flaky struct {
	client.Client
	fails func(list bool) bool
}

var errNoAnswer = errors.New("no answer")

func (f flaky) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if f.fails(true) {
		return errNoAnswer
	}
	return f.Client.List(ctx, l, opts...)
}

func (f flaky) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if f.fails(false) {
		return errNoAnswer
	}
	return f.Client.Update(ctx, o, opts...)
}

func TestMovesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 300)
		in := func(what string, most time.Duration, ready func(owners map[string]string) bool) {
			t.Helper()
			start := time.Now()
			for !ready(c.owners()) {
				if time.Since(start) > most {
					t.Fatalf("%s: not after %v", what, most)
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Logf("%s: after %v", what, time.Since(start))
		}
		by := func(n int) func(map[string]string) bool {
			return func(owners map[string]string) bool {
				replicas := map[string]bool{}
				for _, r := range owners {
					replicas[r] = true
				}
				return len(owners) == len(c.nodes) && len(replicas) == n
			}
		}
		a := c.start("a", quick)
		in("the first replica owns all nodes", time.Second, by(1))
		b := c.start("b", quick)
		in("a second replica owns its share", 15*time.Second, by(2))
		c.start("c", quick)
		in("a third", 15*time.Second, by(3))
		b.crash()
		in("the nodes of a replica that crashed are owned", 15*time.Second, by(2))
		a.stop()
		in("those of one that was stopped, sooner", 4*time.Second, by(1))
	})
}

// TestTellsOfEachChange: when one replica goes and another comes between two looks, the others own other
// nodes, though they are as many as before; so does a replica whose view lapsed between two looks.
func TestTellsOfEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100)
		var mu sync.Mutex
		known := map[string]bool{} // the nodes that a owned when it was told last
		a := c.start("a", quick, func(r *Replica) {
			r.Changed = func() {
				mu.Lock()
				defer mu.Unlock()
				clear(known)
				for _, node := range c.nodes {
					known[node] = r.Owns(node)
				}
			}
		})
		b := c.start("b", quick)
		time.Sleep(20 * time.Second)
		for round := range 30 {
			b.stop()
			time.Sleep(10 * time.Millisecond)
			b = c.start(fmt.Sprint("c-", round), quick)
			for range 200 {
				time.Sleep(100 * time.Millisecond)
				mu.Lock()
				for _, node := range c.nodes {
					if a.Owns(node) && !known[node] {
						t.Fatalf("round %d: a owns %s and was not told", round, node)
					}
				}
				mu.Unlock()
			}
		}
		b.stop()
		time.Sleep(30 * time.Second) // a is alone
		told := 0
		mu.Lock()
		clear(known)
		mu.Unlock()
		for range 20 { // the view lapses, shortly before or long before the next renewal
			c.mu.Lock()
			a.cut.Store(true)
			c.mu.Unlock()
			for a.Owns(c.nodes[0]) {
				time.Sleep(10 * time.Millisecond)
			}
			mu.Lock()
			clear(known)
			mu.Unlock()
			c.mu.Lock()
			a.cut.Store(false)
			c.mu.Unlock()
			for !a.Owns(c.nodes[0]) {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(3 * time.Second)
			mu.Lock()
			if known[c.nodes[0]] {
				told++
			}
			mu.Unlock()
		}
		if told != 20 {
			t.Errorf("told %d of 20 times that it owns the nodes again", told)
		}
	})
}

// TestTellsOfALapse: after a renewal that took so long that the replica owned nothing for a moment, its
// nodes are looked at again.
func TestTellsOfALapse(t *testing.T) {
	at := time.Now()
	one := map[string]renewal{"a": {"1", ""}}
	v := view{self: "a"}.next(at, at, one)
	quick := v.next(at.Add(renewInterval), at.Add(renewInterval+time.Second), one)
	slow := v.next(at.Add(viewTrusted-time.Second), at.Add(viewTrusted+time.Second), one)
	if quick.lapses != v.lapses || slow.lapses != v.lapses+1 || slow.ownFrom != v.ownFrom {
		t.Errorf("lapses %d, then %d and %d; owns from %v and %v", v.lapses, quick.lapses, slow.lapses, v.ownFrom, slow.ownFrom)
	}
}

// TestALateListLosesNone: a list that was answered late shows what was when it was asked for. Another
// replica may have renewed its Lease since, and own nodes all the time.
func TestALateListLosesNone(t *testing.T) {
	at := time.Now()
	after := func(d time.Duration) time.Time { return at.Add(d) }
	both := map[string]renewal{"a": {"1", ""}, "b": {"2", ""}}
	a := view{self: "a"}.next(at, at, both)
	b := view{self: "b"}.next(at, at, both)
	b = b.next(after(viewTrusted-1), after(viewTrusted+requestTimeout-1), both) // its renewal takes effect late
	a = a.next(after(memberLost-requestTimeout), after(memberLost), both)       // and is not seen yet
	for _, node := range []string{"n1", "n2", "n3", "n4", "n5"} {
		now := after(memberLost)
		if a.owner(node) != b.owner(node) || !b.trusted(now) {
			t.Errorf("%s is owned by %s and by %s", node, a.owner(node), b.owner(node))
		}
	}
}

// TestAllAcknowledge: a pause is acknowledged within a second by all, later by those with resizes in
// flight, and without a replica that is frozen only when nothing of it can be in flight any more.
func TestAllAcknowledge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 10)
		names := []string{"a", "b", "c"}
		for _, name := range names {
			c.start(name, quick)
		}
		time.Sleep(20 * time.Second)
		// all says after how long each of some replicas says that all have.
		all := func(pause string, by ...string) time.Duration {
			t.Helper()
			begun := time.Now()
			for {
				n := 0
				for _, name := range by {
					if c.replicas[name].Acknowledge(pause) {
						n++
					}
				}
				if n > 0 {
					return time.Since(begun)
				}
				if time.Since(begun) > time.Minute {
					t.Fatalf("%s is not acknowledged", pause)
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
		if took := all("one", names...); took > time.Second {
			t.Errorf("one: after %v", took)
		}
		for range 100 { // c has a resize in flight
			time.Sleep(50 * time.Millisecond)
			for _, name := range names[:2] {
				if c.replicas[name].Acknowledge("two") {
					t.Fatal("two: without c")
				}
			}
		}
		if took := all("two", names...); took > time.Second {
			t.Errorf("two: after %v", took)
		}
		c.replicas["b"].crash()
		if took := all("three", "a", "c"); took < silentAfter-renewInterval*2 || took > silentAfter+2*renewInterval {
			t.Errorf("three: after %v, want about %v", took, silentAfter)
		}
		c.start("d", quick) // it counts before it owns anything
		time.Sleep(4 * time.Second)
		if c.replicas["a"].Acknowledge("four"); c.replicas["a"].Acknowledge("four") {
			t.Error("four: without d")
		}
		if took := all("four", "a", "c", "d"); took > time.Second {
			t.Errorf("four: after %v", took)
		}
		c.replicas["a"].cut.Store(true)
		time.Sleep(10 * time.Second)
		if c.replicas["a"].Acknowledge("five") {
			t.Error("five: by a replica that cannot tell")
		}
	})
}

// TestALeaseCoversResizes: the Lease of a replica that stops does not lapse for its observers, as a restore
// of all pods is one, before the last resize that the replica may have sent has its answer.
func TestALeaseCoversResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		a := c.start("a", quick)
		time.Sleep(20 * time.Second)
		observer, owned := &kube.LeaderObserver{}, time.Time{}
		observe := func() kube.LeaderState {
			c.api.mu.Lock()
			defer c.api.mu.Unlock()
			lease := c.api.leases["a"]
			return observer.Observe(&lease, time.Now())
		}
		observe()
		a.cut.Store(true) // frozen, and a resize is sent as late as it may be
		for ; observe() == kube.LeaderAlive; time.Sleep(10 * time.Millisecond) {
			if a.Owns(c.nodes[0]) {
				owned = time.Now()
			}
		}
		if after := time.Since(owned); owned.IsZero() || after < podresize.Timeout || after > podresize.Timeout+2*renewInterval {
			t.Errorf("the Lease lapses %v after the last resize may have been sent, want %v at least", after, podresize.Timeout)
		}
	})
}

// TestNothingIsSentLate: what was begun while the node was owned is not sent after it has moved.
func TestNothingIsSentLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		a := c.start("a", quick)
		time.Sleep(time.Second)
		sent := 0
		count := func() error {
			sent++
			return nil
		}
		f := a.Client(interceptor.NewClient(nil, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return count() },
			Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return count() },
			Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return count() },
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return count()
			},
			SubResourcePatch: func(
				context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption,
			) error {
				return count()
			},
		}))
		resizer := a.Resizer(resizes{&sent})
		o := &corev1.ConfigMap{}
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: c.nodes[0]}}
		write := func() (errs []error) {
			ctx := WithNode(t.Context(), c.nodes[0])
			for _, o := range []podresize.Outcome{
				resizer.Apply(ctx, pod, actuator.Move{}).Outcome, resizer.DryRun(ctx, pod, actuator.Move{}).Outcome,
			} {
				var err error
				if o != podresize.Accepted {
					err = ErrMoved
				}
				errs = append(errs, err)
			}
			return append(errs, f.Create(ctx, o), f.Update(ctx, o), f.Delete(ctx, o),
				f.Patch(ctx, o, nil), f.Status().Patch(ctx, o, nil))
		}
		for _, err := range write() {
			if err != nil {
				t.Errorf("while the node is owned: %v", err)
			}
		}
		if sent != 7 {
			t.Errorf("%d requests, want 7", sent)
		}
		a.crash()
		time.Sleep(viewTrusted)
		sent = 0
		for i, err := range write() {
			if !errors.Is(err, ErrMoved) {
				t.Errorf("write %d when the view has lapsed: %v", i, err)
			}
		}
		if sent != 0 {
			t.Errorf("%d requests when the view has lapsed", sent)
		}
		if err := f.Patch(t.Context(), o, nil); err != nil {
			t.Errorf("a write about no node: %v", err)
		}
	})
}

type resizes struct{ sent *int }

func (r resizes) Apply(context.Context, *corev1.Pod, actuator.Move) podresize.Result {
	*r.sent++
	return podresize.Result{}
}

func (r resizes) DryRun(context.Context, *corev1.Pod, actuator.Move) podresize.Result {
	*r.sent++
	return podresize.Result{}
}

// TestCounts: the numbers of nodes follow nodes that come and go, and replicas.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 40)
		var mine, all int
		a := c.start("a", quick, func(r *Replica) { r.OnNodeCount(func(m, n int) { mine, all = m, n }) })
		time.Sleep(time.Second)
		for _, node := range c.nodes {
			a.ObserveNode(node, true)
			a.ObserveNode(node, true)
		}
		if mine != 40 || all != 40 {
			t.Errorf("alone: %d of %d", mine, all)
		}
		c.start("b", quick)
		time.Sleep(20 * time.Second)
		owned := 0
		for _, node := range c.nodes {
			if a.Owns(node) {
				owned++
			}
		}
		if mine != owned || all != 40 || owned == 40 {
			t.Errorf("with another: %d of %d, want %d of 40", mine, all, owned)
		}
		for _, node := range c.nodes {
			a.ObserveNode(node, false)
			a.ObserveNode(node, false)
		}
		if mine != 0 || all != 0 {
			t.Errorf("without nodes: %d of %d", mine, all)
		}
		if n := (*Replica)(nil); !n.Owns("x") || !n.Alone() || !n.Acknowledge("x") || a.Alone() {
			t.Error("a replica that is nil is not alone")
		}
	})
}

func TestMovesLittle(t *testing.T) {
	owners := func(names ...string) []string {
		v := view{self: names[0], members: map[string]sighting{}}
		for _, name := range names {
			v.members[name] = sighting{}
		}
		list := make([]string, 3000)
		for i := range list {
			list[i] = v.owner(fmt.Sprintf("ip-10-0-%d-%d.ec2.internal", i/250, i%250))
		}
		return list
	}
	before := owners("controller-7d9f-a", "controller-7d9f-b", "controller-7d9f-c")
	after := owners("controller-7d9f-a", "controller-7d9f-b", "controller-7d9f-c", "controller-7d9f-d")
	share, moved := map[string]int{}, 0
	for i := range before {
		share[after[i]]++
		if before[i] != after[i] {
			moved++
			if after[i] != "controller-7d9f-d" {
				t.Errorf("a node moved from %s to %s when another replica joined", before[i], after[i])
			}
		}
	}
	for name, n := range share {
		if n < 675 || n > 825 { // within a tenth of a quarter
			t.Errorf("%s owns %d of 3,000 nodes", name, n)
		}
	}
	if moved < 675 || moved > 825 {
		t.Errorf("%d of 3,000 nodes moved, want about a quarter", moved)
	}
}
