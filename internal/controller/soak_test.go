package controller

import (
	"flag"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/internal/testing/history"
	"github.com/mbcas/mbcas/internal/testing/schedule"
)

var (
	soakFor = flag.Duration("soak", 10*time.Minute, "how long TestSoak has load and faults, on its own clock")
)

// remembered counts what a controller remembers: the entries of every map and list that can be reached
// from it, by the fields that lead there.
func remembered(c schedule.Controller) map[string]int {
	counts, seen := map[string]int{}, map[uintptr]bool{}
	count(reflect.ValueOf(c.(*underTest).Reconciler).Elem(), "", counts, seen)
	return counts
}

func count(v reflect.Value, path string, counts map[string]int, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			count(v.Elem(), path, counts, seen)
		}
	case reflect.Interface:
		if !v.IsNil() {
			count(v.Elem(), path, counts, seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !notMemory[name] {
				count(v.Field(i), path+"."+name, counts, seen)
			}
		}
	case reflect.Map:
		counts[path] += v.Len()
		for each := v.MapRange(); each.Next(); {
			count(each.Value(), path+"[]", counts, seen)
		}
	case reflect.Slice:
		counts[path] += v.Len()
		for i := range v.Len() {
			count(v.Index(i), path+"[]", counts, seen)
		}
	}
}

// notMemory are fields that lead out of the controller.
var notMemory = map[string]bool{
	"Client": true, "Live": true, "Resize": true, "Telemetry": true, "Config": true, "Log": true, "Metrics": true, "Events": true,
	"Audit": true, "client": true, "Resizer": true, "Reader": true, "Leases": true, "Pods": true, "API": true,
}

// TestSoak plays a long run of a cluster: see schedule.Soak.
func TestSoak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soak := schedule.Soak{System: system(), Length: *soakFor, Seed: *firstSeed, Remembered: remembered}
		soak.Progress = func(text string) { fmt.Println(text) }
		r := soak.Run()
		for _, v := range r.Violations {
			t.Errorf("%v: invariant %d: %s", r.Events[v.Event].At, v.Invariant, history.Invariants[v.Invariant])
			t.Error(v)
		}
		t.Log(r.Writes, r.PodMinutes, r.Writes.Resizes, r.Writes.Moves, float64(r.Writes.Total())/r.PodMinutes)
		t.Log(r.Requests, r.Counts)
		for path, n := range r.After {
			if n > r.Before[path] {
				t.Errorf("%s: %d, %d before", path, n, r.Before[path])
			}
		}
	})
}
