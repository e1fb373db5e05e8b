package bundle

import "testing"

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
