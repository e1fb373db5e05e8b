package page

import (
	"bytes"
	"encoding/base64"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// element finds the text of an element with an id.
func element(t *testing.T, html, id string) string {
	t.Helper()
	m := regexp.MustCompile(`(?s)<script type="text/plain" id="` + id + `">(.*?)</script>`).FindStringSubmatch(html)
	if m == nil {
		t.Fatalf("the page has no element %s", id)
	}
	return m[1]
}

// TestInlined: an exported page has all its files in it, its policy allows its own script and style by their hashes alone,
// and the recording in it is the one exported. A part that would end its element is refused.
func TestInlined(t *testing.T) {
	index, err := embedded.ReadFile("web/index.html")
	must.Succeed(t, err)
	rec := recordings.Saturated(t, "</script><script>alert(1)</script>", "cart", 5)
	var file bytes.Buffer
	must.Succeed(t, rec.Write(&file))
	parts := map[string]string{
		"web/index.html": string(index), "dist/page.css": "body{margin:0}", "dist/page.js": "start(1<2)", "dist/worker.js": "work()",
		"dist/market.wasm.gz": "\x1f\x8b", "dist/lit-html.LICENSE.txt": "BSD", "dist/uPlot.LICENSE.txt": "MIT", "dist/Go.LICENSE.txt": "BSD",
	}
	html, err := inlined(parts, file.Bytes())
	must.Succeed(t, err)
	// The sums are those of: printf %s 'start(1<2)' | openssl dgst -sha256 -binary | base64
	policy := `content="default-src 'none'; script-src 'SCRIPT' 'wasm-unsafe-eval'; style-src 'STYLE'; img-src data:; worker-src blob:; ` +
		`base-uri 'none'; form-action 'none'"`
	policy = strings.NewReplacer("SCRIPT", "sha256-SkGXaDaifVSEZZ7ZWk+X3jbVoyb/2ln2NGmfdHjLgds=", "STYLE", "sha256-IAdwN3biDCQ3brrgp1m8kBEsPQYyqfREKOEfeoREopc=").Replace(policy)
	if !strings.Contains(html, policy) {
		t.Errorf("the policy is not %s in\n%.600s", policy, html)
	}
	if found := regexp.MustCompile(`(src|href)="[^#d][^"]*"`).FindString(html); found != "" || strings.Contains(html, "alert") {
		t.Errorf("the page refers to %s, or has a name of the recording as markup", found)
	}
	data, err := base64.StdEncoding.DecodeString(element(t, html, "recording"))
	must.Succeed(t, err)
	got, err := record.Open(bytes.NewReader(data))
	if err != nil || got.About.Node != rec.About.Node || len(got.Minutes) != len(rec.Minutes) {
		t.Errorf("the recording in it is %+v, %v", got, err)
	}
	if got := element(t, html, "market"); got != "H4s=" {
		t.Errorf("the market is %q", got)
	}
	for name, bad := range map[string]string{"dist/page.js": "'</SCRIPT>'", "dist/page.css": "</style>", "dist/worker.js": "<!--", "web/index.html": "<html>"} {
		broken := maps.Clone(parts)
		broken[name] = bad
		if _, err := inlined(broken, nil); err == nil {
			t.Errorf("%s with %s is taken", name, bad)
		}
	}
}

// TestExportNeedsThePage: a program without the page says so instead of writing half of it.
func TestExportNeedsThePage(t *testing.T) {
	var out bytes.Buffer
	err := Export(&out, recordings.Saturated(t, "node-1", "cart", 5))
	if Built() && (err != nil || out.Len() < 100_000) || !Built() && (err == nil || !strings.Contains(err.Error(), "make page") || out.Len() > 0) {
		t.Errorf("built %v: %d bytes, %v", Built(), out.Len(), err)
	}
}
