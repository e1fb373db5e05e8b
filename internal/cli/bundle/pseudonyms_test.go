package bundle

import (
	"archive/zip"
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/cli/cluster"
)

// TestPseudonyms: a name that is part of another is not replaced in it, a short one in words of its own only, and what
// every installation has stays.
func TestPseudonyms(t *testing.T) {
	p := newPseudonyms("mbcas-system")
	one, ten, app := p.of("node-1"), p.of("node-10"), p.of("app")
	for text, want := range map[string]string{
		"node-10 and node-1":     ten + " and " + one,
		"app happens in app.log": app + " happens in " + app + ".log",
		"10.1.2.3:443":           p.of("10.1.2.3") + ":443",
		p.of("mbcas-system"):     "mbcas-system",
	} {
		if got := p.text(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
	if other := newPseudonyms().of("node-1"); other == one {
		t.Error("two bundles have the same pseudonym")
	}
}

// TestUIDInPath: a UID is replaced in the path of a cgroup, too, where the systemd driver writes it with _.
func TestUIDInPath(t *testing.T) {
	p := newPseudonyms()
	const uid = "0b8f6c1e-52d1-4a4e-9d9e-0f3f5a9c77aa"
	name := p.of(uid)
	for text, want := range map[string]string{
		"kubepods-burstable-pod0b8f6c1e_52d1_4a4e_9d9e_0f3f5a9c77aa.slice": "kubepods-burstable-pod" + name + ".slice",
		"/kubepods/burstable/pod" + uid:                                    "/kubepods/burstable/pod" + name,
	} {
		if got := p.text(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestOff: without --anonymize no name is remembered, however many pods there are.
func TestOff(t *testing.T) {
	p := newPseudonyms()
	p.off = true
	p.learn(map[string]any{"metadata": map[string]any{"name": "cart"}})
	p.learnLog(`{"pod":"shop/cart"}`)
	if err := learnEach(p, []func(){nil}); err != nil { // a function cannot be written as JSON: it was not tried
		t.Error(err)
	}
	if name := p.of("node-1"); name != "node-1" || len(p.names) > 0 {
		t.Errorf("%q, and %d names are remembered", name, len(p.names))
	}
}

// TestFit: what is too long for a file is cut, and what is missing is told.
func TestFit(t *testing.T) {
	const most = 256 << 10
	same, as := func(s string) string { return s }, func(v any) any { return v }
	items := make([]any, 1000)
	for i := range items {
		items[i] = map[string]any{"text": strings.Repeat("x", most/500)}
	}
	objects := file{name: "a.yaml", object: map[string]any{"items": items}}
	data, cut, err := objects.fit(most, same, as, same, false)
	if err != nil || len(data) > most || len(data) < most/2 || !strings.HasPrefix(cut, "it has the first ") || !strings.HasSuffix(cut, " of 1000 objects") {
		t.Errorf("%d bytes, %q, %v", len(data), cut, err)
	}
	text := file{name: "a.log", text: strings.Repeat("x", most) + "end"}
	if data, cut, err = text.fit(most, same, as, same, false); err != nil || len(data) != most || cut != "it has its end" || !strings.HasSuffix(string(data), "end") {
		t.Errorf("%d bytes, %q, %v", len(data), cut, err)
	}
	one := file{name: "b.yaml", object: map[string]any{"x": strings.Repeat("x", most)}}
	if _, _, err = one.fit(most, same, as, same, false); err == nil || !strings.Contains(err.Error(), "a file has at most") {
		t.Errorf("what cannot be cut: %v", err)
	}
}

// TestWrittenFilesFit: no file of a bundle has more bytes than one may have, and the index tells of what is cut.
func TestWrittenFilesFit(t *testing.T) {
	c := &collector{Access: &cluster.Access{Now: time.Now}, names: newPseudonyms()}
	c.files = []file{{name: "a.log", text: strings.Repeat("x", mostBytes) + "end"}}
	index := &Index{}
	data, err := c.zip(index)
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil || z.File[0].UncompressedSize64 != mostBytes {
		t.Errorf("%d bytes, want %d: %v", z.File[0].UncompressedSize64, mostBytes, err)
	}
	const told = "a.log is cut: it has its end; a file has at most 16777216 bytes"
	if len(index.Parts) != 1 || !slices.Equal(index.Parts[0].Errors, []string{told}) {
		t.Errorf("the index has %+v, want %q", index.Parts, told)
	}
}
