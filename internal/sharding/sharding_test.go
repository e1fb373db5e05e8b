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
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	cut         bool // requests get lost
}

func newCluster(t *testing.T, nodes int) *cluster {
	c := &cluster{t: t, replicas: map[string]*running{}}
	c.api = api{mu: new(sync.Mutex), leases: map[string]coordinationv1.Lease{}, version: new(int)}
	for i := range nodes {
		c.nodes = append(c.nodes, fmt.Sprintf("node-%d", i))
	}
	return c
}

// start starts a replica; delay is what each of its requests takes.
func (c *cluster) start(name string, delay func() (before, after time.Duration)) *running {
	r := &running{}
	link := c.api
	link.delay = func() (time.Duration, time.Duration) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.cut {
			return time.Hour, 0
		}
		return delay()
	}
	r.Replica = &Replica{
		API: link, Namespace: "mbcas-system", Name: name, Changed: func() {}, Log: slog.New(slog.DiscardHandler),
	}
	ctx, stop := context.WithCancel(c.t.Context())
	r.stop = stop
	r.crash = func() { // as a process that ends: no request any more, and it owns nothing
		c.mu.Lock()
		r.cut = true
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

func TestOneOwner(t *testing.T) {
	for seed := range uint64(60) {
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
			c := newCluster(t, 12)
			owned := 0
			next := 0
			for range 3 {
				c.start(fmt.Sprintf("replica-%d", next), slow)
				next++
			}
			for range 3000 { // five minutes
				time.Sleep(time.Duration(1+draw(200)) * time.Millisecond)
				owned += len(c.owners())
				names := []string{}
				for name := range c.replicas {
					names = append(names, name)
				}
				if len(names) == 0 || draw(200) > 0 {
					if len(names) < 3 && draw(30) == 0 {
						c.start(fmt.Sprintf("replica-%d", next), slow)
						next++
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
					r.cut = !r.cut
					c.mu.Unlock()
				}
			}
			if owned == 0 {
				t.Errorf("seed %d: no node had an owner at any time", seed)
			}
			for _, r := range c.replicas {
				r.crash()
			}
			time.Sleep(2 * time.Hour) // the requests that are on their way
		})
	}
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
		for _, r := range c.replicas {
			r.crash()
		}
		time.Sleep(2 * time.Hour)
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
