// Package recordings makes recordings for tests: of simulated nodes, and of what a test has recorded itself.
package recordings

import (
	"bytes"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
)

// Everything keeps all of a test.
var Everything = record.Limits{Keep: 24 * time.Hour, Bytes: 1 << 30}

// About is that of all these recordings.
var About = record.About{Node: "node-1", Version: "v0.1.0", Arch: "amd64"}

// Of is what a recorder holds, written as a file and read again.
func Of(t testing.TB, rec *record.Recorder) *record.Recording {
	t.Helper()
	var file bytes.Buffer
	if err := rec.WriteTo(&file, About, 0); err != nil {
		t.Fatal(err)
	}
	got, err := record.Open(&file)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Played is the recording of a scenario of the catalogue, as MBCAS with a config plays it on a simulated node, for at most
// this time; 0: to its end.
func Played(t testing.TB, name string, cfg mbcas.Config, length time.Duration) *record.Recording {
	t.Helper()
	s, err := scenario.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Record = record.NewRecorder(Everything)
	setup := s.Setup(0, 1)
	setup.WarmUp = 0
	if length > 0 {
		setup.Length = length
	}
	sim.Run(setup, mbcas.New(cfg))
	return Of(t, cfg.Record)
}

// Noon is not at a whole millisecond, as the times of rounds are not.
var Noon = time.Date(2026, 11, 21, 12, 0, 0, 400_000, time.UTC)

// Saturated is a recording of two pods that saturate a node, for so many seconds from Noon on.
func Saturated(t testing.TB, node, pod string, seconds int) *record.Recording {
	t.Helper()
	rec := record.NewRecorder(Everything)
	cfg := round.DefaultConfig()
	var pods []round.PodInput
	names := []record.Name{{Namespace: "shop", Name: pod}, {Namespace: "shop", Name: "batch"}}
	for _, name := range names {
		c := demand.Container{Name: "app", ID: name.Name, Request: 500, Declared: 1000, Limit: 1000}.Within(0, 2000)
		pods = append(pods, round.PodInput{Pod: demand.Pod{UID: name.Name, Budget: 500, Containers: []demand.Container{c}}})
	}
	var state round.State
	for i := range seconds {
		at := time.Duration(i) * time.Second
		in := round.Input{Now: Noon.Add(at), Node: round.Node{Capacity: 2000, Allocatable: 1500}, Pods: pods}
		in.Sample.Node = kernel.NodeSample{At: in.Now, Usage: kernel.KnownTotal(2 * at), Kubepods: kernel.KnownTotal(2 * at), Idle: kernel.KnownTotal(0)}
		for _, p := range pods {
			in.Sample.Pods = append(in.Sample.Pods, kernel.PodSample{Pod: p.UID, Containers: []kernel.Group{{
				ID: p.Containers[0].ID, Found: true, At: in.Now, Quota: kernel.Quota{Limit: 100 * time.Millisecond, Period: 100 * time.Millisecond},
				Stat: kernel.Stat{Usage: at, Periods: uint64(10 * i), Throttled: uint64(9 * i)},
			}}})
		}
		rec.Begin(in.Now, cfg, &state)
		var out round.Output
		state, out = round.Run(cfg, state, in)
		rec.Round(in, names, &out)
	}
	got := Of(t, rec)
	got.About.Node = node
	return got
}
