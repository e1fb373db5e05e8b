package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
	"github.com/mbcas/mbcas/internal/sharding"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// shards are several replicas of the controller beside the same API server, and nodes with a pod each.
type shards struct {
	*rig
	nodes    []string
	pods     []*corev1.Pod
	replicas []*shard
}

// shard is one replica.
type shard struct {
	*rig // with its own audit lines
	wire *wire
	name string
	stop func()
}

func (r *rig) shards(nodes int) *shards {
	r.Helper()
	s := &shards{rig: r}
	for i := range nodes {
		k := s.Kubelet(s.T, fmt.Sprintf("%s-%d", s.kubelet.Node, i))
		pod := apiserver.Pod(s.namespace, fmt.Sprintf("web-%d", i), apiserver.Container("app", "100m", "500m"))
		s.nodes, s.pods = append(s.nodes, k.Node), append(s.pods, k.Run(s, pod))
	}
	s.heard()
	return s
}

// heard renews the Leases of all agents.
func (s *shards) heard() {
	s.Helper()
	for _, node := range s.nodes {
		s.must(renew(s.Context(), s.Client, s.config.Namespace, node, time.Now(), allocation.NodeMarket{}))
	}
}

// join starts a replica.
func (s *shards) join(name string) *shard {
	s.Helper()
	there, w := s.wired(nil)
	c, err := client.New(there.Config, client.Options{Scheme: s.Client.Scheme(), Mapper: s.Client.RESTMapper()})
	s.must(err)
	there.replica = sharding.New(c, s.config.Namespace, kube.ReplicaLease(name), slog.New(slog.DiscardHandler))
	one := &shard{rig: there, wire: w, name: name, stop: there.start()}
	s.replicas = append(s.replicas, one)
	return one
}

// crash ends a replica as if its process were killed: no request of it gets through any more.
func (s *shards) crash(one *shard) {
	s.Helper()
	one.wire.mu.Lock()
	one.wire.broken = true
	one.wire.mu.Unlock()
	go one.stop()
}

// owners are the replicas that own a node, by the node. A node with two fails the test. A node may
// move while the replicas are asked, so the first has to own it after the second, too.
func (s *shards) owners() map[string]*shard {
	s.Helper()
	owners := map[string]*shard{}
	for _, one := range s.replicas {
		for _, node := range s.nodes {
			if one.replica.Owns(node) {
				if other := owners[node]; other != nil && other.replica.Owns(node) {
					s.Fatalf("%s is owned by %s and by %s", node, other.name, one.name)
				}
				owners[node] = one
			}
		}
	}
	return owners
}

// divided waits until all nodes are owned, by these replicas, and returns how long that took.
func (s *shards) divided(by ...*shard) time.Duration {
	s.Helper()
	begun := time.Now()
	s.until("all nodes have an owner", func() (bool, any) {
		owners, with := s.owners(), map[*shard]bool{}
		for _, one := range owners {
			with[one] = true
		}
		all := len(owners) == len(s.nodes) && len(with) == len(by)
		return all && !slices.ContainsFunc(by, func(one *shard) bool { return !with[one] }), len(owners)
	})
	return time.Since(begun)
}

// decideAll has the agents decide on a limit for all pods.
func (s *shards) decideAll(limit cpu.Milli) {
	s.Helper()
	s.heard()
	for _, pod := range s.pods {
		s.allocation(pod, "made", recorded)
		s.publish(pod, "0.000", app(limit))
	}
}

// reach waits until all pods have a limit.
func (s *shards) reach(limit cpu.Milli) {
	s.Helper()
	for _, pod := range s.pods {
		s.reaches(pod, limit)
	}
}

// attempts are the audit lines of all replicas, by pod, limit and outcome, with the replicas' names.
func (s *shards) attempts() map[string][]string {
	s.Helper()
	by := map[string][]string{}
	for _, one := range s.replicas {
		lines := bufio.NewScanner(strings.NewReader(one.audit.String()))
		for lines.Scan() {
			var line struct {
				Pod, Outcome string
				To           map[string]any
			}
			s.must(json.Unmarshal(lines.Bytes(), &line))
			key := fmt.Sprint(line.Pod, " ", line.To["app"], " ", line.Outcome)
			by[key] = append(by[key], one.name)
		}
	}
	return by
}

// onceEach fails the test unless every pod was resized to each of the limits once, and by no failed attempt.
func (s *shards) onceEach(limits ...cpu.Milli) {
	s.Helper()
	s.rest() // a resize is audited a moment after it took place
	attempts := s.attempts()
	if len(attempts) != len(limits)*len(s.pods) {
		s.Errorf("%d different resizes, want %d for each of %d pods", len(attempts), len(limits), len(s.pods))
	}
	for what, by := range attempts {
		if len(by) != 1 || !strings.HasSuffix(what, " Accepted") {
			s.Errorf("resize %s by %v, want one", what, by)
		}
	}
}

// paused pauses and waits for the acknowledgement, for as long as that took.
func (s *shards) paused(value string) time.Duration {
	s.Helper()
	begun := time.Now()
	s.must(restore.Pause(s.Context(), s.Client, s.config.Namespace, kube.PluginFieldManager, value))
	w := restore.Waiter{Client: s.Client, Namespace: s.config.Namespace, Now: time.Now, Interval: 10 * time.Millisecond}
	answer, _, err := w.Wait(s.Context(), value)
	s.must(err)
	if answer != restore.Acknowledged {
		s.Fatalf("pause %s: answer %v", value, answer)
	}
	return time.Since(begun)
}

func (s *shards) resumed() {
	s.Helper()
	s.must(restore.Resume(s.Context(), s.Client, s.config.Namespace, kube.PluginFieldManager))
}

// TestShards: the nodes are divided over two and three replicas, and those of one that is killed have
// a new owner within 15 s; no resize is made twice; a pause is acknowledged by all replicas that live.
func TestShards(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		s := r.shards(9)
		a, b := s.join("a"), s.join("b")
		s.divided(a, b)
		s.decideAll(1000)
		s.reach(1000)
		s.onceEach(1000)

		c := s.join("c")
		t.Logf("a third replica owns its part after %v", s.divided(a, b, c))
		s.decideAll(2000)
		s.reach(2000)
		s.onceEach(1000, 2000)
		for _, one := range s.replicas {
			if one.counter.resizes() == 0 {
				t.Errorf("replica %s resized no pod", one.name)
			}
		}
		took := s.paused("by three")
		if t.Logf("paused by three after %v", took); took > 2*time.Second {
			t.Errorf("a pause was acknowledged after %v", took)
		}
		s.decideAll(3000)
		time.Sleep(10 * time.Second)
		s.onceEach(1000, 2000) // none while paused
		s.resumed()
		s.reach(3000)
		s.onceEach(1000, 2000, 3000)

		s.crash(b)
		s.decideAll(4000)
		if took := s.divided(a, c); took > 15*time.Second {
			t.Errorf("the nodes of a replica that was killed have a new owner after %v, want within 15 s", took)
		} else {
			t.Logf("the nodes of a replica that was killed have a new owner after %v", took)
		}
		s.reach(4000)
		s.onceEach(1000, 2000, 3000, 4000)

		a.stop()
		if took := s.divided(c); took > 5*time.Second {
			t.Errorf("the nodes of a replica that stopped have a new owner after %v, want within 5 s", took)
		}
		s.decideAll(3900)
		for _, pod := range s.pods {
			s.allocation(pod, "not changed by so little", stands(v1alpha1.PhaseApplied, reasons.WithinDeadBand))
		}
		s.onceEach(1000, 2000, 3000, 4000)
	})
}

// TestAllocationsWithoutANode: a PodAllocation that names a node which does not exist is deleted, also where
// it is older than the controller.
func TestAllocationsWithoutANode(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		forged := allocation.New(r.pod("web", "100m", "500m"))
		forged.OwnerReferences, forged.Spec.NodeName = nil, "no-such-node"
		forged.Name, forged.Spec.PodRef.UID = "no-such-pod", "no-such-pod"
		r.must(r.Client.Create(t.Context(), forged))
		r.replica = sharding.New(r.Client, r.config.Namespace, kube.ReplicaLease("a"), slog.New(slog.DiscardHandler))
		// Beside the Lease of another replica it owns nothing at first.
		other := &coordinationv1.Lease{}
		other.Namespace, other.Name = r.config.Namespace, kube.ReplicaLease("b")
		other.Labels = map[string]string{kube.ReplicaLabel: "true"}
		r.must(r.Client.Create(t.Context(), other))
		r.start(func(rec *Reconciler) { rec.jitter = func(d time.Duration) time.Duration { return d / 30 } })
		r.until("deleted", func() (bool, any) {
			err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(forged), forged)
			return apierrors.IsNotFound(err), err
		})
	})
}

// TestAFrozenReplica: a resize of a replica that is frozen just before the request changes nothing when
// it comes at last: the new owner of the node has resized the pod. Pauses count without the replica
// once nothing of it can be in flight.
func TestAFrozenReplica(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		s := r.shards(4)
		a := s.join("a") // and leads: a leader that is frozen for so long ends
		s.divided(a)
		b := s.join("b")
		s.divided(a, b)
		s.decideAll(1000)
		s.reach(1000)
		var frozen []*corev1.Pod
		for i, pod := range s.pods {
			if s.owners()[s.nodes[i]] == b {
				frozen = append(frozen, pod)
			}
		}
		thaw := b.wire.hold(anyWrite)
		defer thaw()
		before := len(b.wire.writes())
		s.decideAll(2000)
		s.until("a resize waits", func() (bool, any) {
			writes := b.wire.writes()[before:]
			return slices.ContainsFunc(writes, func(w string) bool { return strings.Contains(w, "/resize") }), writes
		})
		s.divided(a)
		s.reach(2000)
		t.Logf("paused with one frozen after %v", s.paused("with one frozen"))
		thaw()
		s.divided(a, b) // it joins anew
		attempts := s.attempts()
		for _, pod := range frozen {
			if by := attempts[pod.Name+" 2000m Accepted"]; !slices.Equal(by, []string{"a"}) {
				t.Errorf("pod %s was resized by %v, want by a alone", pod.Name, by)
			}
			s.limitIs(pod, 2000, "after the replica went on")
		}
		s.resumed()
		s.decideAll(3000)
		s.reach(3000)
	})
}

// TestAHiccupForgetsNothing: while the API server lists no Leases of replicas, nothing is written about a
// node. What is known of its pods holds after that: none is resized before its time.
func TestAHiccupForgetsNothing(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		var cut atomic.Bool
		flaky := interceptor.NewClient(r.Client, interceptor.Funcs{List: func(
			ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption,
		) error {
			if cut.Load() {
				return errLost
			}
			return c.List(ctx, list, opts...)
		}})
		r.replica = sharding.New(flaky, r.config.Namespace, kube.ReplicaLease("a"), slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.replica.Start(ctx) }()
		defer func() {
			stop()
			r.must(<-ended)
		}()
		owned := func(want bool) {
			t.Helper()
			r.until(fmt.Sprint("owned: ", want), func() (bool, any) { return r.replica.Owns(r.kubelet.Node) == want, nil })
		}
		owned(true)
		l := r.live()
		pod := l.raised("web")
		l.jitter = func(time.Duration) time.Duration { return time.Hour }
		tries := l.refuse(podresize.Unavailable)
		r.publish(pod, "0.000", app(3000))
		l.becomes(pod, "tried", func(*v1alpha1.PodAllocation) bool { return *tries == 1 })
		cut.Store(true)
		owned(false)
		writes := len(l.writes())
		r.publish(pod, "0.000", app(4000))
		l.look(pod)
		if got := l.writes()[writes:]; len(got) > 0 {
			t.Errorf("written while nothing is known of other replicas: %v", got)
		}
		cut.Store(false)
		owned(true)
		l.pass(time.Second)
		for range 3 {
			l.look(pod)
		}
		if *tries != 1 {
			t.Errorf("the resize was tried %d times, want once in an hour", *tries)
		}
	})
}
