package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/vm"
)

func TestPlace(t *testing.T) {
	type spot struct {
		Index int
		Node  string
	}
	one, two := spot{1, "mbcas-vm-1"}, spot{2, "mbcas-vm-2"}
	tests := map[string]struct {
		have   []spot
		name   string
		want   spot
		wants  string // in the error
		reason string
	}{
		"first":       {want: one},
		"second":      {have: []spot{one}, want: two},
		"in a gap":    {have: []spot{two}, want: one, reason: "a removed node's slot is free again"},
		"named":       {name: "slow", want: spot{1, "slow"}},
		"no room":     {have: []spot{one, two}, wants: "node remove mbcas-vm-1"},
		"name taken":  {have: []spot{one}, name: "mbcas-vm-1", wants: "exists"},
		"name in use": {have: []spot{{2, "mbcas-vm-1"}}, want: spot{1, "mbcas-vm-2"}, reason: "a nameless one gets the next name that is free"},
		"the host's":  {name: "mbcas-node-1", wants: "exists"},
		"a path":      {name: "../x", wants: "DNS label", reason: "the name is a folder's name too"},
	}
	for name, tt := range tests {
		var have []config.Slot
		for _, h := range tt.have {
			have = append(have, config.Slot{Index: h.Index, Node: h.Node})
		}
		index, called, err := freeSlot(config.Default("/x", true), have, tt.name, vm.Name)
		if tt.wants != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wants) {
				t.Errorf("%s: err %v, want one with %q; %s", name, err, tt.wants, tt.reason)
			}
			continue
		}
		if d := cmp.Diff(tt.want, spot{index, called}); d != "" || err != nil {
			t.Errorf("%s: %v; %s (-want +got):\n%s", name, err, tt.reason, d)
		}
	}
}
