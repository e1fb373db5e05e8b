package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/cpu"
)

// TestShorten: what is granted is divided over the increases, and decreases need no room.
func TestShorten(t *testing.T) {
	change := func(name string, from, to cpu.Milli) actuator.Change {
		return actuator.Change{Container: name, From: from, To: to}
	}
	for name, c := range map[string]struct {
		granted cpu.Milli
		changes []actuator.Change
		want    []actuator.Change
		worth   bool
	}{
		"a part":              {800, []actuator.Change{change("app", 100, 1000)}, []actuator.Change{change("app", 100, 900)}, true},
		"two parts":           {300, []actuator.Change{change("app", 100, 500), change("side", 100, 300)}, []actuator.Change{change("app", 100, 300), change("side", 100, 200)}, true},
		"too little":          {9, []actuator.Change{change("app", 100, 1000)}, nil, false},
		"within the band":     {90, []actuator.Change{change("app", 1000, 2000)}, []actuator.Change{change("app", 1000, 1090)}, false},
		"a decrease, no room": {0, []actuator.Change{change("app", 2000, 500), change("side", 100, 300)}, []actuator.Change{change("app", 2000, 500)}, true},
		"more than is wanted": {5000, []actuator.Change{change("app", 100, 1000)}, []actuator.Change{change("app", 100, 1000)}, true},
	} {
		cut, worth := Shorten(actuator.Move{UID: "u", Changes: c.changes}, c.granted, 0.1)
		if d := cmp.Diff(actuator.Move{UID: "u", Changes: c.want}, cut); d != "" || worth != c.worth {
			t.Errorf("%s: worth a resize: %v\n%s", name, worth, d)
		}
	}
}
