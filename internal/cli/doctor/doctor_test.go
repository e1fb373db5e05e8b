package doctor

import (
	"errors"
	"testing"
)

// TestChecks: every check has a name of its own within its area, and the areas are in order.
func TestChecks(t *testing.T) {
	seen, areas := map[[2]string]bool{}, map[string]bool{}
	for i, c := range checks {
		key := [2]string{c.area, c.name}
		if c.area == "" || c.name == "" || c.judge == nil && c.reads == nil || seen[key] {
			t.Errorf("check %d, %q: want an area, a name of its own and a judgement", i, key)
		}
		if i > 0 && checks[i-1].area != c.area && areas[c.area] {
			t.Errorf("check %q stands apart from its area", key)
		}
		seen[key], areas[c.area] = true, true
	}
}

// TestUnreachable: if the API server does not respond, doctor judges nothing else.
func TestUnreachable(t *testing.T) {
	list := Judge(&Facts{Unreadable: map[string]error{"version": errors.New("connection refused")}})
	if len(list) != 1 || list[0].Level != Fail || list[0].Check != "cluster" || list[0].Name != "API server" {
		t.Errorf("findings %+v", list)
	}
}
