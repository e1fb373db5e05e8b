package past

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// TestModeSetAt: an API server keeps when a label was set, and set to another value. Of a namespace without the label nothing
// is known.
func TestModeSetAt(t *testing.T) {
	s := apiserver.Start(t)
	ctx := t.Context()
	ns := &corev1.Namespace{}
	ns.Name, ns.Labels = "two-modes", map[string]string{"team": "shop"}
	if err := s.Client.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	set := func(patch string) time.Time {
		t.Helper()
		if err := s.Client.Patch(ctx, ns, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
		return modeSetAt(ns)
	}
	if at := modeSetAt(ns); !at.IsZero() {
		t.Errorf("without the label it was set at %v", at)
	}
	started := time.Now().Truncate(time.Second) // the API server keeps seconds
	at := set(`{"metadata":{"labels":{"` + kube.ModeLabel + `":"enforce"}}}`)
	if at.Before(started) || at.After(time.Now()) {
		t.Errorf("set at %v, want from %v on", at, started)
	}
	values := []string{"recommend", "enforce"}
	apiserver.Eventually(t, "another value has another time", func() (bool, any) {
		values[0], values[1] = values[1], values[0]
		again := set(`{"metadata":{"labels":{"` + kube.ModeLabel + `":"` + values[0] + `"}}}`)
		return again.After(at), again
	})
	if at := set(`{"metadata":{"labels":{"` + kube.ModeLabel + `":null}}}`); !at.IsZero() {
		t.Errorf("removed, it was set at %v", at)
	}
}
