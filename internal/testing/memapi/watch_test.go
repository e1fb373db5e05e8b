package memapi_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestWatch: a watch that wants the present objects has these, a bookmark, and then each change, of what
// its selector selects; one from a version has what changed since; one from a version that was compacted
// is refused.
func TestWatch(t *testing.T) {
	s := memapi.New(time.Now)
	node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	create := func(name string) {
		t.Helper()
		must.Succeed(t, s.Create("test", node(name)))
	}
	watch := func(query string) (next func() string) {
		t.Helper()
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://memapi/api/v1/nodes?watch=true&"+query, nil)
		must.Succeed(t, err)
		r, err := s.RoundTrip(q)
		must.Succeed(t, err)
		t.Cleanup(func() { _ = r.Body.Close() })
		if r.StatusCode != http.StatusOK {
			return func() string { return http.StatusText(r.StatusCode) }
		}
		events := json.NewDecoder(r.Body)
		return func() string {
			var e struct {
				Type   string
				Object corev1.Node
			}
			must.Succeed(t, events.Decode(&e))
			return e.Type + " " + e.Object.Name + " " + e.Object.ResourceVersion
		}
	}
	expect := func(next func() string, want ...string) {
		t.Helper()
		for _, w := range want {
			if got := next(); got != w {
				t.Errorf("%q, want %q", got, w)
			}
		}
	}
	create("a")
	create("b")
	all, one := watch("sendInitialEvents=true"), watch("sendInitialEvents=true&fieldSelector=metadata.name%3Db")
	memapi.Change(s, "test", "", "b", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	s.Delete("test", node("a"))
	expect(all, "ADDED a 1", "ADDED b 2", "BOOKMARK  2", "MODIFIED b 3", "DELETED a 4")
	expect(one, "ADDED b 2", "BOOKMARK  2", "MODIFIED b 3")
	expect(watch("resourceVersion=2"), "MODIFIED b 3", "DELETED a 4")
	s.Compact(3)
	expect(watch("resourceVersion=3"), "DELETED a 4")
	expect(watch("resourceVersion=2"), "Gone")
}
