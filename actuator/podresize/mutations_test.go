package podresize

import (
	"fmt"
	"testing"
)

// TestMutationsAreBounded: however many namespaces admission changes pods of, few are remembered, and what
// was seen in one that is forgotten does not count as unseen.
func TestMutationsAreBounded(t *testing.T) {
	var m Mutations
	before := m.Number("a")
	m.Found("a", 0, false)
	after := m.Number("a")
	for i := range 3 * mutationsMost {
		m.Found(fmt.Sprint("other-", i), 0, false)
	}
	if last := m.Number("a"); last == before || after == before {
		t.Errorf("the last mutation was %d, then %d, and now is %d", before, after, last)
	}
	if len(m.byNamespace) > mutationsMost {
		t.Errorf("%d namespaces are remembered, want at most %d", len(m.byNamespace), mutationsMost)
	}
}
