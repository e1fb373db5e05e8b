package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/loads"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// Soak is a long run of a cluster of a few nodes: the production agents, each with all its goroutines, and
// the production controller, on the clock of a synctest bubble. Pods come and go, are rolled out anew, and
// run load like that recorded; nodes are lost; requests, kubelets, webhooks, agents and controllers fail.
// Then everything works again, the load stays as it is, all pods are restored, and all of them go.
type Soak struct {
	System
	Nodes, Pods int
	Length      time.Duration // of the part with load and faults
	Seed        uint64        // of what is drawn, but for the jitter of the agents
	// Calm: no faults, no pods that come or go, and no end: load alone, of which the first ten minutes are not counted.
	Calm bool
	Mode kube.Mode // of the namespaces; "": enforce
	// TwoControllers work on all nodes from the beginning to the end. One of them forgets now and then.
	TwoControllers bool
	// Steps are troubles, such as "2m agent n1 stop", instead of those that are drawn, and of pods that come or go.
	Steps  []string
	Traces []*loads.Trace
	// Load is that of a container which requests so much; nil: as said above.
	Load func(request cpu.Milli, seed uint64) *loads.Load
	// Remembered is how much a controller remembers, by what it is.
	Remembered func(Controller) map[string]int
	// Progress is told each simulated hour; nil: it is not.
	Progress func(string)
}

// SoakResult is what came of it.
type SoakResult struct {
	Result
	Soak
	Writes     *Writes
	PodMinutes float64
	// Before and After are how much the controller remembers of the nodes without pods.
	Before, After map[string]int
	Requests      map[string]int // of agents, by what became of them
	Ledgered      int            // the most entries that a ledger has in the end, all of pods that are gone
}

const (
	// settleFor is how long things may take to come to rest, quietFor how long nothing is to be written then,
	// and forgetFor how long what is remembered of pods may stay after them.
	settleFor = 45 * time.Minute
	quietFor  = 12 * time.Minute
	forgetFor = 35 * time.Minute
	warmUp    = 10 * time.Minute
)

// soak is a Soak under way.
type soak struct {
	Soak
	*world
	random   *rand.Rand
	began    time.Time
	members  map[string]*member
	inbox    inbox
	writes   *Writes
	seen     int // changes of the API server's log that kubelets and controllers have seen
	planned  []planned
	next     time.Time // when the next trouble begins
	share    float64   // of the controller's reconciles that meet a fault
	born     int       // nodes so far
	answers  map[string]int
	minutes  float64
	quietNow bool // no churn and no troubles
}

// planned is a step for later.
type planned struct {
	at   time.Time
	step string
}

// Run runs it, within a synctest bubble.
func (o Soak) Run() SoakResult {
	s := &soak{
		Soak: o, world: emptyWorld(o.System, time.Now()), random: rand.New(rand.NewPCG(o.Seed, 23)), began: time.Now(),
		members: map[string]*member{}, writes: newWrites(), answers: map[string]int{},
	}
	s.world.elapse = s.elapse
	s.inbox.answers = s.answers
	s.api.Stored = func(e memapi.Event) {
		s.stored(e)
		s.confirmed(e)
		s.writes.count(s.world, e)
	}
	for range s.Nodes {
		s.addNode()
	}
	s.start("A", 0, false)
	if s.TwoControllers {
		s.start("B", 0, false)
	}
	s.run(3 * time.Minute)
	result := SoakResult{Soak: o, Writes: s.writes, Before: s.Remembered(s.processes["A"].controller)}
	s.populate()
	if s.Calm {
		s.run(warmUp)
		*s.writes = *newWrites()
	}
	s.minutes, s.next = 0, s.now.Add(2*time.Minute)
	for _, text := range s.Steps {
		after, step, _ := strings.Cut(text, " ")
		d, err := time.ParseDuration(after)
		if err != nil {
			panic(err)
		}
		s.plan(d, step)
	}
	s.runHours(o.Length)
	result.PodMinutes = s.minutes
	if s.writes.stopped = true; !s.Calm {
		s.end()
	}
	result.After = s.Remembered(s.processes["A"].controller)
	for _, m := range s.members {
		m.stop()
	}
	result.Requests = s.answers
	for _, cm := range memapi.All[*corev1.ConfigMap](s.api) {
		if strings.HasPrefix(cm.Name, kube.LedgerPrefix) {
			result.Ledgered = max(result.Ledgered, len(cm.Data))
		}
	}
	result.Result = Result{s.events, history.Check(s.Soak.Rules, s.events), s.counts, s.requests}
	return result
}

// runHours tells of each hour.
func (s *soak) runHours(d time.Duration) {
	for left := d; left > 0; left -= time.Hour {
		s.run(min(left, time.Hour))
		if s.Progress != nil {
			s.Progress(fmt.Sprintf("%v: %d events, %s", s.now.Sub(s.began).Round(time.Minute), len(s.events), s.writes))
		}
		s.api.Compact(max(0, s.api.Length()-2000))
	}
}

// end has everything work and come to rest, has all pods restored, and takes them away.
func (s *soak) end() {
	s.quietNow = true
	for _, p := range s.planned {
		s.step(p.step)
	}
	s.planned, s.share = nil, 0
	s.mend()
	if s.TwoControllers {
		s.start("B", 0, false)
	}
	for _, m := range s.members {
		m.conn.Play(nil)
		m.counters.Freeze()
	}
	s.run(settleFor)
	s.note(history.Event{Kind: history.Quiet})
	s.run(quietFor)
	s.note(history.Event{Kind: history.Stirred})
	for _, ns := range Namespaces {
		s.play([]string{"quota", ns, "none"})
		s.play([]string{"mode", ns, string(kube.ModeRestore)})
	}
	s.play([]string{"hpa", "off"})
	s.play([]string{"pdb", "off"})
	s.run(5 * time.Minute)
	s.note(history.Event{Kind: history.Restored})
	for _, name := range podNames(s.pods) {
		s.remove(name)
	}
	s.pods = nil
	s.run(forgetFor)
}

// addNode adds a node with its agent.
func (s *soak) addNode() (name string) {
	s.born++
	name = fmt.Sprintf("n%d", s.born)
	s.nodes = append(s.nodes, name)
	s.node(name)
	s.members[name] = s.newMember(name)
	s.members[name].start()
	for _, p := range s.processes {
		p.due[name] = s.now
	}
	return name
}

// populate makes the pods: each requests 50m to 300m and may use two to five times that.
func (s *soak) populate() {
	if s.Mode != "" {
		for _, ns := range Namespaces {
			s.play([]string{"mode", ns, string(s.Mode)})
		}
	}
	for i := range s.Pods {
		request := []int{50, 100, 200, 300}[s.random.IntN(4)]
		p := podSpec{
			name: fmt.Sprintf("p%d", i+1), namespace: Namespaces[min(i%3, 1)], node: s.nodes[i%s.Nodes],
			containers: []corev1.Container{apiserver.Container("app", milliText(request), milliText(request*(2+s.random.IntN(4))))},
		}
		if i < 10 {
			p.namespace, p.deployment = Namespaces[0], "web"
		} else if i%9 == 0 {
			p.containers = append(p.containers, apiserver.Container("side", "20m", "100m"))
		}
		s.pods = append(s.pods, p)
		s.world.run(p.name)
	}
}

func milliText(m int) string { return fmt.Sprintf("%dm", m) }

// elapse lets time pass for the agents, and answers their requests.
func (s *soak) elapse(d time.Duration) {
	for ; d > 0; d -= time.Second {
		time.Sleep(min(d, time.Second))
		s.serve()
	}
}

// serve answers the requests of agents until all wait for the time to pass.
func (s *soak) serve() {
	for {
		synctest.Wait()
		s.now = time.Now()
		list := s.inbox.take()
		if len(list) == 0 {
			return
		}
		for _, q := range list {
			q.answer(s.api)
		}
	}
}

// run lets the cluster run.
func (s *soak) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		s.elapse(time.Second)
		if !s.quietNow {
			s.trouble()
		}
		s.minutes += float64(s.api.Count("pods")) / 60
		s.settle()
	}
}

// settle has kubelets and controllers do what there is to do now.
func (s *soak) settle() {
	for times := 0; ; times++ {
		changed := s.api.Length() != s.seen
		if changed {
			s.look()
		}
		worked := false
		for _, name := range Processes {
			s.process(name, func(p *process) { worked = s.work(p, changed) || worked })
		}
		s.serve()
		if !worked && s.api.Length() == s.seen {
			return
		}
		if times > endless {
			s.note(history.Event{Kind: history.Endless, By: "all", Node: "all"})
			return
		}
	}
}

// work has a process do what is due, and says whether there was anything.
func (s *soak) work(p *process, changed bool) (worked bool) {
	if p.stopped {
		return false
	}
	if changed {
		p.show("all")
	}
	p.caughtUp = s.now
	p.background()
	for _, node := range slices.Clone(s.nodesDue(p)) {
		if p.controller == nil || p.stopped {
			return true
		}
		var script []string
		if s.random.Float64() < s.share {
			script = []string{fmt.Sprintf("%s@%d", s.requestFault(), 1+s.random.IntN(6))}
		}
		p.reconcile(node, script)
		worked = true
	}
	return worked
}

// nodesDue are the nodes that a process is to reconcile now.
func (s *soak) nodesDue(p *process) (names []string) {
	for name, at := range p.due {
		if !at.After(s.now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// look has kubelets look at their pods, and the garbage collector and the quota controller at what has changed.
func (s *soak) look() {
	s.seen = s.api.Length()
	for _, n := range s.nodes {
		s.kubelet(n, s.kubelets[n])
		s.members[n].follow()
	}
	s.collect()
	s.api.Credit()
}

// collect deletes what belongs to objects that have gone.
func (s *soak) collect() {
	owned := slices.Concat(
		objects(memapi.All[*coordinationv1.Lease](s.api)), objects(memapi.All[*corev1.ConfigMap](s.api)),
		objects(memapi.All[*v1alpha1.NodeAllocation](s.api)), objects(memapi.All[*v1alpha1.PodAllocation](s.api)))
	exists := map[types.UID]bool{}
	for _, o := range slices.Concat(objects(memapi.All[*corev1.Node](s.api)), objects(memapi.All[*corev1.Pod](s.api))) {
		exists[o.GetUID()] = true
	}
	for _, o := range owned {
		owners := o.GetOwnerReferences()
		if len(owners) > 0 && owners[0].UID != "" && !exists[owners[0].UID] {
			s.api.Delete("gc", o)
		}
	}
}

func objects[T client.Object](list []T) (all []client.Object) {
	for _, o := range list {
		all = append(all, o)
	}
	return all
}

// confirmed notes the decisions that the agent of a node stands by when it renews its Lease.
func (s *soak) confirmed(e memapi.Event) {
	lease, ok := e.After.(*coordinationv1.Lease)
	if !ok || !strings.HasPrefix(e.Actor, agentActor) {
		return
	}
	node, _ := kube.AgentLeaseNode(lease)
	said, err := allocation.ParseNodeMarket(lease.Annotations[kube.MarketKey])
	told := memapi.Get[*v1alpha1.NodeAllocation](s.api, "", node)
	if err != nil || told == nil {
		return
	}
	for _, pa := range memapi.All[*v1alpha1.PodAllocation](s.api) {
		uid := pa.Spec.PodRef.UID
		if pa.Spec.NodeName == node && pa.Spec.Decision != nil && !said.Unconfirmed.Has(uid) {
			s.note(history.Event{Kind: history.Published, Pod: string(uid), Node: node, Stamp: pa.Spec.Decision.ObservedAt.Time})
		}
	}
}
