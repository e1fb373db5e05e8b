package flowcontrol

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// TestEach: an error and a panic about one item cost the others nothing.
func TestEach(t *testing.T) {
	var done atomic.Int64
	wrong := errors.New("wrong")
	err := Each(2, []int{0, 1, 2, 3, 4}, func(i int) error {
		switch i {
		case 1:
			return wrong
		case 2:
			panic("poison")
		}
		done.Add(1)
		return nil
	})
	var p *Panic
	if done.Load() != 3 || !errors.Is(err, wrong) || !errors.As(err, &p) || p.Value != "poison" || !strings.Contains(p.Stack, "TestEach") {
		t.Errorf("%d done, error %v", done.Load(), err)
	}
}

// TestSound: what panics about some items alone is made of the others, and where it panics about no single one, it
// fails for all.
func TestSound(t *testing.T) {
	decide := func(bad ...int) func([]int) []int {
		return func(items []int) []int {
			for _, b := range bad {
				if slices.Contains(items, b) {
					panic("poison")
				}
			}
			if len(bad) == 0 && len(items) > 1 {
				panic("together")
			}
			return items
		}
	}
	for name, c := range map[string]struct {
		decide func([]int) []int
		want   []int
		failed int
	}{
		"none":     {decide(9), []int{1, 2, 3}, 0},
		"two":      {decide(1, 3), []int{2}, 2},
		"together": {decide(), nil, 3},
	} {
		failed := 0
		made := Isolate([]int{1, 2, 3}, c.decide, func(int, error) { failed++ })
		if !slices.Equal(made, c.want) || failed != c.failed {
			t.Errorf("%s: made %v, %d failed", name, made, failed)
		}
	}
}
