package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func line(namespace, query string, code int, message string) string {
	return fmt.Sprintf(`{"stage":"ResponseComplete","requestURI":"/api/v1/namespaces/%s/pods/x/resize%s","user":{"username":"controller"},`+
		`"objectRef":{"resource":"pods","namespace":%q,"name":"x","subresource":"resize"},"responseStatus":{"code":%d,"message":%q}}`+"\n",
		namespace, query, namespace, code, message)
}

func TestCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if n, err := Size(path); n != 0 || err != nil {
		t.Errorf("a log that is not there has size %d, %v", n, err)
	}
	earlier := line("shop", "", 200, "")
	if err := os.WriteFile(path, []byte(earlier), 0o644); err != nil {
		t.Fatal(err)
	}
	offset, err := Size(path)
	if err != nil {
		t.Fatal(err)
	}
	text := earlier +
		line("shop", "", 200, "") + line("shop", "?fieldManager=m&dryRun=All", 200, "") +
		line("shop", "", 409, "modified") + line("shop", "", 422, "invalid") + line("other", "", 200, "") +
		`{"stage":"ResponseComplete","objectRef":{"resource":"podallocations","namespace":"shop"},"responseStatus":{"code":200}}` + "\n" +
		`{"stage":"Resp` // being written
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Since(path, offset, []string{"shop"})
	if err != nil {
		t.Fatal(err)
	}
	want := Count{Resizes: 1, Failed: 1, Stale: 1, DryRuns: 1, Reasons: map[string]int{"invalid": 1}, Accounts: map[string]int{"controller": 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEach(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	refused := `{"stage":"ResponseComplete","verb":"create","user":{"username":"rs"},"requestReceivedTimestamp":"2026-11-20T12:00:00.5Z",` +
		`"objectRef":{"resource":"pods","namespace":"shop","name":"x"},"responseStatus":{"code":403,"message":"pods \"x\" is forbidden: exceeded quota: compute"}}` + "\n"
	whole := `{"stage":"ResponseStarted"}` + "\n" + refused
	if err := os.WriteFile(path, []byte(whole+refused[:20]), 0o644); err != nil {
		t.Fatal(err)
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
