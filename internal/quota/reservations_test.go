package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const backoff, backoffMax = time.Minute, 30 * time.Minute

var large = []Room{{Name: "cores", Hard: 100000, Used: 1000}}

func newReservations() *Reservations { return NewReservations(DefaultConfig(), backoff, backoffMax) }

// grants is how much of an increase of a pod of namespace shop is granted.
func (r *Reservations) grants(pod string, below, above cpu.Milli, rooms []Room, now time.Time) cpu.Milli {
	granted, _ := r.Reserve(Increase{Namespace: "shop", Pod: pod, Below: below, Above: above}, rooms, now)
	return granted
}

// TestOneShortageCountsOnce: increases that a quota refuses at the same time delay the others of the
// namespace for a minute, not for half an hour; a shortage after that counts twice as long. It
// concerns what is above the declared limits, and only while no quota eases.
func TestOneShortageCountsOnce(t *testing.T) {
	r, now := newReservations(), noon
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
		for k := range 6 {
			r.Refused("shop", large, now.Add(time.Duration(k)*time.Millisecond))
		}
		r.Accepted("shop", now.Add(10*time.Millisecond)) // was in flight
		if got := r.grants("a", 400, 1000, large, now.Add(want-time.Second)); got != 400 {
			t.Errorf("shortage %d: %v granted within %v, want the 400m up to the declared limit", i+1, got, want)
		}
		now = now.Add(want)
		if got := r.grants("a", 0, 1000, large, now); got != 1000 {
			t.Errorf("shortage %d: %v granted after %v, want 1000m", i+1, got, want)
		}
	}
	r.Accepted("shop", now)
	r.Refused("shop", large, now)
	if got := r.grants("a", 0, 1000, []Room{{Name: "cores", Hard: 100000, Used: 900}}, now); got != 1000 {
		t.Errorf("once the quota is used less %v, want 1000m", got)
	}
	if got := r.grants("a", 0, 1000, large, now.Add(time.Minute)); got != 1000 {
		t.Errorf("%v granted a minute after the first refusal that follows an increase, want 1000m", got)
	}
}

// TestGrantsShowInTurn: of several increases at once a quota shows one after the other, and what
// shows of one is not taken for another.
func TestGrantsShowInTurn(t *testing.T) {
	r, now := newReservations(), noon
	for _, c := range []struct {
		pod               string
		used, above, want cpu.Milli
	}{
		{"a", 2700, 60, 60}, // up to 2880
		{"b", 2700, 60, 60},
		{"c", 2760, 120, 60}, // that of a, or of b
		{"d", 2820, 10, 0},   // that of c is still to come
		{"d", 2880, 10, 0},
		{"d", 2860, 30, 20}, // another pod decreased, after all of them
	} {
		now = now.Add(10 * time.Millisecond)
		if got := r.grants(c.pod, 0, c.above, []Room{{Name: "cores", Hard: 3200, Used: c.used}}, now); got != c.want {
			t.Errorf("%s is granted %v of %v while %v are used, want %v", c.pod, got, c.above, c.used, c.want)
		}
		if c.used == 2880 {
			now = now.Add(Lag)
		}
	}
}

// TestReplicasGrantNoMoreThanIsLeft: replicas see the status of a quota late, each at another time, and
// know nothing of each other's grants. What they grant pods that ask for the first time is never more
// than there is; a replica with few pods gets what the others leave after a while.
func TestReplicasGrantNoMoreThanIsLeft(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		parts := []float64{0.5, 0.3, 0.2}
		replicas := []*Reservations{newReservations(), newReservations(), newReservations()}
		const hard = 10000
		type change struct {
			at   time.Time
			used cpu.Milli
		}
		history := []change{{noon.Add(-time.Hour), 4000}}
		used := func() cpu.Milli { return history[len(history)-1].used }
		seen := make([]int, len(replicas)) // into history
		now := noon
		for i := range 200 {
			now = now.Add(time.Duration(random.IntN(400)) * time.Millisecond)
			k := random.IntN(len(replicas))
			for seen[k]+1 < len(history) && (now.Sub(history[seen[k]+1].at) >= Lag || random.IntN(2) == 0) {
				seen[k]++
			}
			room := Room{Name: "cores", Hard: hard, Used: history[seen[k]].used}
			below := cpu.Milli(1 + random.IntN(3000))
			granted, _ := replicas[k].Reserve(
				Increase{Namespace: "shop", Pod: fmt.Sprint("pod-", i), Below: below, Others: 1 - parts[k]}, []Room{room}, now)
			if used()+granted > hard {
				t.Fatalf("seed %d: %v granted at %v of %v", seed, granted, used(), cpu.Milli(hard))
			}
			if granted > 0 {
				history = append(history, change{now, used() + granted})
			}
		}
		if used() < 9000 {
			t.Errorf("seed %d: %v of %v is used in the end", seed, used(), cpu.Milli(hard))
		}
	}
	r, now, room := newReservations(), noon, []Room{{Name: "cores", Hard: 10000, Used: 9000}}
	ask := func() (granted cpu.Milli, again time.Time) {
		return r.Reserve(Increase{Namespace: "shop", Pod: "one", Below: 1000, Others: 0.9}, room, now)
	}
	granted, again := ask()
	if granted != 100 || !again.Equal(now.Add(othersTake)) {
		t.Errorf("%v granted of 1000m with a tenth of the pods, again at %v, want 100m and again after %v", granted, again, othersTake)
	}
	now = again
	if granted, _ := ask(); granted != 1000 {
		t.Errorf("%v granted when no other has asked, want 1000m", granted)
	}
	now = now.Add(time.Hour)
	ask()
	now, room[0].Used = now.Add(othersTake), 9500
	if granted, _ := ask(); granted > 100 {
		t.Errorf("%v granted after another grant, want a tenth of what is left", granted)
	}
}

// TestTalliesAreExact: what is granted, and when more may be, is what counting all grants anew at each
// question makes it.
func TestTalliesAreExact(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		r, slow := newReservations(), newReservations()
		now, used := noon, map[string]cpu.Milli{"cores": 4000, "low": 1000}
		for step := range 300 {
			now = now.Add(time.Duration(random.IntN(5)*random.IntN(200)) * time.Millisecond)
			i := Increase{
				Namespace: []string{"shop", "bank"}[random.IntN(2)], Below: cpu.Milli(random.IntN(800)), Above: cpu.Milli(random.IntN(800)),
				Others: []float64{0, 0.3}[random.IntN(2)],
			}
			i.Pod = fmt.Sprint(i.Namespace, random.IntN(12))
			rooms := []Room{{Name: "cores", Hard: 10000, Used: used["cores"]}, {Name: "low", Hard: 5000, Used: used["low"]}}
			rooms = rooms[random.IntN(2) : 1+random.IntN(2)]
			if len(rooms) == 0 {
				continue
			}
			ask := (*Reservations).Grants
			switch random.IntN(4) {
			case 0:
				ask = (*Reservations).Reserve
			case 1:
				r.Release(i.Pod)
				slow.Release(i.Pod)
			case 2:
				used[rooms[0].Name] += cpu.Milli(random.IntN(900) - 400)
			}
			clear(slow.tallies)
			got, again := ask(r, i, rooms, now)
			want, wantAgain := ask(slow, i, rooms, now)
			if got != want || !again.Equal(wantAgain) {
				t.Fatalf("seed %d, step %d: %v granted and again at %v, want %v and %v", seed, step, got, again, want, wantAgain)
			}
		}
	}
}

// TestRefusalsAreForgotten: also those of a namespace that is not seen again.
func TestRefusalsAreForgotten(t *testing.T) {
	r := newReservations()
	r.Refused("shop", large, noon)
	r.Refused("gone", large, noon)
	later := noon.Add(backoff + backoffMax)
	if r.grants("a", 0, 1000, large, later.Add(-time.Second)); len(r.refusals) != 2 {
		t.Errorf("%d namespaces are remembered, want 2", len(r.refusals))
	}
	if r.grants("a", 0, 1000, large, later); len(r.refusals) != 0 {
		t.Errorf("still remembered: %v", r.refusals)
	}
}

// TestWaitsForWhatMayChange: an increase that a quota has no room for is looked at again when a grant
// to another pod expires or a refusal is over. Else it waits for the quota.
func TestWaitsForWhatMayChange(t *testing.T) {
	room := func(used cpu.Milli) []Room { return []Room{{Name: "cores", Hard: 2000, Used: used}} }
	r := newReservations()
	ask := Increase{Namespace: "shop", Pod: "a", Above: 100}
	check := func(what string, rooms []Room, now, want time.Time) {
		t.Helper()
		if granted, again := r.Reserve(ask, rooms, now); granted != 0 || !again.Equal(want) {
			t.Errorf("%s: %v granted, again at %v, want %v", what, granted, again, want)
		}
	}
	check("a full quota", room(1800), noon, time.Time{})
	check("a quota that was not counted yet", []Room{{Name: "cores"}}, noon, time.Time{})
	if got := r.grants("b", 0, 100, room(1700), noon); got != 100 {
		t.Errorf("of 100m that are left %v", got)
	}
	check("what another has been granted", room(1700), noon.Add(time.Second), noon.Add(Lag))
	r.Release("b")
	if got := r.grants("a", 0, 100, room(1700), noon.Add(time.Second)); got != 100 {
		t.Errorf("of what another has returned %v", got)
	}
	r = newReservations()
	r.Refused("shop", room(1700), noon)
	check("right after a refusal", room(1700), noon, noon.Add(backoff))
}

// TestDrift: what a quota counts beyond the pods counts once it has lasted, quotas are kept apart,
// and those that are gone are forgotten.
func TestDrift(t *testing.T) {
	var d Drift
	now := noon
	d.Lasting("shop", 30, now)
	d.Lasting("bank", 900, now)
	now = now.Add(time.Second)
	if got, again := d.Lasting("shop", 5000, now); got != 30 || !again.Equal(now.Add(Lag)) {
		t.Errorf("%v and another look at %v", got, again)
	}
	for i := range 5 { // falling, but for long above what it was
		now = now.Add(time.Second)
		d.Lasting("shop", cpu.Milli(5000-100*i), now)
	}
	if got, again := d.Lasting("shop", 4000, now); got != 4000 || !again.IsZero() {
		t.Errorf("%v, and another look at %v; want 4000m", got, again)
	}
	if got, _ := d.Lasting("bank", -70, now); got != 0 {
		t.Errorf("%v where the quota shows less than the pods, want none", got)
	}
	now = now.Add(driftKept)
	d.Lasting("shop", 0, now)
	if len(d.quotas) != 1 {
		t.Errorf("%d quotas are remembered, want the one that is looked at", len(d.quotas))
	}
}
