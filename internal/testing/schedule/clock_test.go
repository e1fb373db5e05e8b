package schedule

import (
	"bytes"
	"io"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestDatesAreShifted: a clock that is ahead shifts the dates of Leases, which agents send as protobuf, and those in
// JSON.
func TestDatesAreShifted(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lease := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
	lease.Name, lease.Spec.RenewTime = "mbcas-agent-n1", &metav1.MicroTime{Time: at}
	var b bytes.Buffer
	must.Succeed(t, binary.Encode(lease, &b))
	read := func(body []byte) []byte {
		t.Helper()
		r, n, err := shifted(io.NopCloser(bytes.NewReader(body)), time.Hour)
		must.Succeed(t, err)
		text, err := io.ReadAll(r)
		if err != nil || int64(len(text)) != n {
			t.Fatalf("%d bytes, %v; want %d", len(text), err, n)
		}
		return text
	}
	var got coordinationv1.Lease
	if _, _, err := binary.Decode(read(b.Bytes()), nil, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != lease.Name || !got.Spec.RenewTime.Equal(&metav1.MicroTime{Time: at.Add(time.Hour)}) {
		t.Errorf("Lease %s is renewed at %v", got.Name, got.Spec.RenewTime)
	}
	const observed = `{"spec":{"decision":{"observedAt":"2026-01-01T12:00:00.000000Z"}}}`
	if got, want := string(read([]byte(observed))), `{"spec":{"decision":{"observedAt":"2026-01-01T13:00:00.000000Z"}}}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
