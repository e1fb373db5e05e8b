package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/must"
)

func TestEach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	refused := `{"stage":"ResponseComplete","verb":"create","user":{"username":"rs"},` +
		`"requestReceivedTimestamp":"2026-11-20T12:00:00.5Z",` +
		`"objectRef":{"resource":"pods","namespace":"shop","name":"x"},` +
		`"responseStatus":{"code":403,"message":"pods \"x\" is forbidden: exceeded quota: compute"}}` + "\n"
	whole := `{"stage":"ResponseStarted"}` + "\n" + refused
	must.Succeed(t, os.WriteFile(path, []byte(whole+refused[:20]), 0o644))
	n := 0
	err := Log{path: path}.Each(func(e Event) {
		n++
		if !e.Of("") || !e.OverQuota() || e.DryRun() || e.User.Username != "rs" || e.Received.Nanosecond() != 5e8 {
			t.Errorf("%+v", e)
		}
	})
	if n != 1 || err != nil {
		t.Errorf("%d answers, %v; want one", n, err)
	}
	log, err := From(path)
	must.Succeed(t, err)
	if err := log.Each(func(e Event) { t.Errorf("%+v is older", e) }); err != nil {
		t.Error(err)
	}
	must.Succeed(t, os.Truncate(path, 10))
	if err := log.Each(func(Event) {}); err == nil {
		t.Error("no error although the log is shorter than it was")
	}
	if none, err := From(path + ".none"); err != nil || none.offset != 0 {
		t.Errorf("a log that does not exist yet: %+v, %v", none, err)
	}
}
