// Package recordings makes recordings for tests: of simulated nodes, and of what a test has recorded itself.
package recordings

import (
	"bytes"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/lab/scenario"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/record"
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
	s, err := scenario.Find(name, "")
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
