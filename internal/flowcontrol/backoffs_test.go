package flowcontrol

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mbcas/mbcas/internal/kube"
)

// TestBackoffs: waits double, longer after a refusal; each thing waits by itself, and a success ends it.
func TestBackoffs(t *testing.T) {
	b := NewBackoffs(func(d time.Duration) time.Duration { return d })
	contested := fmt.Errorf("status: %w", kube.ErrContested)
	refused, lost := apierrors.NewInvalid(schema.GroupKind{}, "p", nil), errors.New("connection lost")
	for i, want := range []time.Duration{5, 10, 20, 40, 80, 160, 320, 600, 600} {
		until, news := b.Failed("refused", refused, noon)
		if wait := until.Sub(noon); wait != want*time.Second || news != (i == 0) {
			t.Errorf("failure %d: waits %v, news %v; want %v s", i+1, wait, news, int(want))
		}
		if until, _ := b.Failed("contested", contested, noon); until.Sub(noon) != want*time.Second {
			t.Errorf("change %d by another controller: waits %v, want %v s", i+1, until.Sub(noon), int(want))
		}
		if until, _ := b.Failed("lost", lost, noon); until.Sub(noon) > failedMost {
			t.Errorf("failure %d of the network: waits %v", i+1, until.Sub(noon))
		}
	}
	if !b.Waits(noon, "other").IsZero() || !b.Waits(noon, "other", "lost").Equal(noon.Add(failedMost)) {
		t.Error("another thing waits, or one of two does not")
	}
	if _, news := b.Failed("refused", lost, noon); !news {
		t.Error("another error is no news")
	}
	b.Succeeded("refused")
	if until, news := b.Failed("refused", refused, noon); until.Sub(noon) != failedFirst || !news {
		t.Errorf("after a success: waits %v, news %v", until.Sub(noon), news)
	}
	b.Failed("later", lost, noon.Add(time.Hour))
	if len(b.failed) != 1 {
		t.Errorf("%d things are remembered, want those of the last hour: one", len(b.failed))
	}
	if b.Waits(noon.Add(2*time.Hour), "other"); len(b.failed) != 0 {
		t.Errorf("%d things are remembered without another failure, want none", len(b.failed))
	}
}
