package main

import "testing"

// TestEveryMutantApplies: the line of each mutant is in its file, once; there are at least sixteen.
func TestEveryMutantApplies(t *testing.T) {
	for _, m := range mutants {
		if _, err := m.mutated("../.."); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if len(mutants) < 16 {
		t.Errorf("%d mutants, want at least 16", len(mutants))
	}
}
