//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/client"
)

// TestPlanIsKept: units count from the beginning of a plan to its end, on all its threads.
func TestPlanIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &job{plans: make(chan client.Plan, 1), unit: func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
				return nil
			}
		}}
		now := time.Now()
		end := now.Add(2050 * time.Millisecond)
		j.play(t.Context(), client.Plan{Threads: 3, From: now.Add(time.Second), Until: end})
		// Each thread ends ten units in 1.05 s, and the eleventh is cut off.
		if got := j.count(); got.Units != 30 || !got.Ended || got.Error != "" || !got.From.Equal(now.Add(time.Second)) {
			t.Errorf("%+v, want 30 units, ended", got)
		}
		if took := time.Since(now); took != 2050*time.Millisecond {
			t.Errorf("it took %v, want 2.05 s", took)
		}
	})
}

// TestUncountedPlan: its work is done, and changes nothing of what the plan before it has done.
func TestUncountedPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		units := 0
		j := &job{unit: func(context.Context) error {
			time.Sleep(100 * time.Millisecond)
			units++
			return nil
		}}
		now := time.Now()
		end := now.Add(1050 * time.Millisecond)
		j.play(t.Context(), client.Plan{Threads: 1, From: now, Until: end})
		j.play(t.Context(), client.Plan{Threads: 1, From: end, Until: end.Add(time.Second), Uncounted: true})
		if got := j.count(); got.Units != 10 || !got.Ended || !got.From.Equal(now) || units < 20 {
			t.Errorf("%+v after %d units, want 10 that count of more than 20", got, units)
		}
	})
}

// TestFailedUnitIsTold: it does not count.
func TestFailedUnitIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &job{unit: func(context.Context) error { return errors.New("xz: not found") }}
		j.play(t.Context(), client.Plan{Threads: 1, From: time.Now(), Until: time.Now().Add(time.Second)})
		if got := j.count(); got.Units != 0 || got.Error != "xz: not found" {
			t.Errorf("%+v, want no unit and the error", got)
		}
	})
}

// TestNothingIsLeftBehind: a program that is cut off ends with what it has started.
func TestNothingIsLeftBehind(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- execute(ctx, "sh", "-c", `sleep 1000 & echo $! >"$0.new"; mv "$0.new" "$0"; wait`, pids)
	}()
	var text []byte
	for text == nil {
		text, _ = os.ReadFile(pids)
		select {
		case err := <-done:
			t.Fatalf("it ended too early: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it was cut off, and that is no error")
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(child, 0) == nil { // until its parent, init, has seen that it ended
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
}

// TestAtMost: no more requests are handled at a time, and each that waits is handled.
func TestAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, most, handled := 0, 0, 0
		var mu sync.Mutex
		handle := atMost(3, func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			now, handled = now+1, handled+1
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
		})
		var requests sync.WaitGroup
		for range 10 {
			r := httptest.NewRequest(http.MethodGet, "/page", http.NoBody)
			requests.Go(func() { handle(httptest.NewRecorder(), r) })
		}
		requests.Wait()
		if most != 3 || handled != 10 {
			t.Errorf("%d at a time, %d handled; want 3 and 10", most, handled)
		}
	})
}

func TestMultiply(t *testing.T) {
	c := make([]float64, 4)
	multiply(2, []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, c)
	for i, want := range []float64{19, 22, 43, 50} {
		if c[i] != want {
			t.Errorf("c = %v, want 19 22 43 50", c)
		}
	}
}

func TestCorpusIsTheSame(t *testing.T) {
	if a, b := corpus(5000), corpus(5000); len(a) != 5000 || !bytes.Equal(a, b) {
		t.Errorf("%d and %d bytes, equal %v", len(a), len(b), bytes.Equal(a, b))
	}
}
