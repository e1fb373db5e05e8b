package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

func TestPlace(t *testing.T) {
	one, two := vm.Machine{Name: "mbcas-vm-1", Index: 1}, vm.Machine{Name: "mbcas-vm-2", Index: 2}
	tests := map[string]struct {
		have   []vm.Machine
		name   string
		want   vm.Machine
		wants  string // in the error
		reason string
	}{
		"first":      {want: one},
		"second":     {have: []vm.Machine{one}, want: two},
		"in a gap":   {have: []vm.Machine{two}, want: one, reason: "a removed machine's slot is free again"},
		"named":      {name: "slow", want: vm.Machine{Name: "slow", Index: 1}},
		"no room":    {have: []vm.Machine{one, two}, wants: "node remove mbcas-vm-1"},
		"name taken": {have: []vm.Machine{one}, name: "mbcas-vm-1", wants: "exists"},
		"the host's": {name: "mbcas-node-1", wants: "exists"},
		"a path":     {name: "../x", wants: "DNS label", reason: "the name is a folder's name too"},
	}
	for name, tt := range tests {
		got, err := place(config.Default("/x", true), tt.have, vm.Machine{Name: tt.name})
		if tt.wants != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wants) {
				t.Errorf("%s: err %v, want one with %q; %s", name, err, tt.wants, tt.reason)
			}
			continue
		}
		if d := cmp.Diff(tt.want, got); d != "" || err != nil {
			t.Errorf("%s: %v; %s (-want +got):\n%s", name, err, tt.reason, d)
		}
	}
}
