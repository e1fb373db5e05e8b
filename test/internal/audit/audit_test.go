package audit

import (
	"os"
	"path/filepath"
	"testing"
)

func TestEach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	refused := `{"stage":"ResponseComplete","verb":"create","user":{"username":"rs"},` +
		`"requestReceivedTimestamp":"2026-11-20T12:00:00.5Z",` +
		`"objectRef":{"resource":"pods","namespace":"shop","name":"x"},` +
		`"responseStatus":{"code":403,"message":"pods \"x\" is forbidden: exceeded quota: compute"}}` + "\n"
	whole := `{"stage":"ResponseStarted"}` + "\n" + refused
	if err := os.WriteFile(path, []byte(whole+refused[:20]), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"audit.log": int64(len(whole) + 20), "none.log": 0} {
		if size, err := Size(filepath.Join(filepath.Dir(path), name)); size != want || err != nil {
			t.Errorf("%s has size %d, %v; want %d", name, size, err, want)
		}
	}
	n := 0
	err := Each(path, 0, func(e Event) {
		n++
		if !e.Of("") || !e.OverQuota() || e.DryRun() || e.User.Username != "rs" || e.Received.Nanosecond() != 5e8 {
			t.Errorf("%+v", e)
		}
	})
	if n != 1 || err != nil {
		t.Errorf("%d answers, %v; want one", n, err)
	}
	if err := Each(path, int64(len(whole)+1000), func(Event) {}); err == nil {
		t.Error("no error although the log is shorter than it was")
	}
}
