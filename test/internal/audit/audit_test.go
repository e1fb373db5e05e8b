package audit

import (
	"os"
	"path/filepath"
	"slices"
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
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Each(func(e Event) { t.Errorf("%+v is older", e) }); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if err := log.Each(func(Event) {}); err == nil {
		t.Error("no error although the log is shorter than it was")
	}
	if none, err := From(path + ".none"); err != nil || none.offset != 0 {
		t.Errorf("a log that does not exist yet: %+v, %v", none, err)
	}
}

// TestRotated: the API server renames a log that is full, and goes on in a new file.
func TestRotated(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "audit.log")
	line := func(verb string) string { return `{"stage":"ResponseComplete","verb":"` + verb + `"}` + "\n" }
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rotate := func(at string) string {
		t.Helper()
		old := filepath.Join(folder, "audit-"+at+".log")
		if err := os.Rename(path, old); err != nil {
			t.Fatal(err)
		}
		return old
	}
	write(filepath.Join(folder, "audit-2026-11-26T03-00-00.000.log"), line("older"))
	write(path, line("before"))
	log, err := From(path)
	if err != nil {
		t.Fatal(err)
	}
	write(path, line("before")+line("first"))
	old := rotate("2026-11-27T03-00-00.000")
	write(path, line("second"))
	rotate("2026-11-27T04-00-00.000")
	write(path, line("third")+line("third"))
	var got []string
	err = log.Each(func(e Event) { got = append(got, e.Verb) })
	if want := []string{"first", "second", "third", "third"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if err := os.Remove(old); err != nil {
		t.Fatal(err)
	}
	if err := log.Each(func(Event) {}); err == nil {
		t.Error("no error although the file with the beginning is gone")
	}
}
