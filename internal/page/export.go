package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/mbcas/mbcas/internal/record"
)

// exportPolicy is the Content-Security-Policy of an exported page: its own script and style, by their hashes, and its own
// market. Nothing can be fetched, and nothing sent.
const exportPolicy = "default-src 'none'; script-src '%s' 'wasm-unsafe-eval'; style-src '%s'; img-src data:; worker-src blob:; " +
	"base-uri 'none'; form-action 'none'"

// Export writes the page as one file that needs no server and no network: the recording, the components of the page, and the
// market as WebAssembly, which decides inside the browser.
func Export(w io.Writer, rec *record.Recording) error {
	if !Built() {
		return errors.New("export the page: this kubectl-mbcas was built without the page; run make page, which needs npm, and " +
			"then make build")
	}
	var recording bytes.Buffer
	if err := rec.Write(&recording); err != nil {
		return fmt.Errorf("write the recording of node %s: %w", rec.About.Node, err)
	}
	parts := map[string]string{}
	for _, name := range []string{"web/index.html", "dist/page.css", "dist/page.js", "dist/worker.js", "dist/market.wasm.gz",
		"dist/lit-html.LICENSE.txt", "dist/uPlot.LICENSE.txt", "dist/Go.LICENSE.txt"} {
		data, err := embedded.ReadFile(name)
		if err != nil {
			return fmt.Errorf("export the page: %w; run make page, and build again", err)
		}
		parts[name] = string(data)
	}
	page, err := inlined(parts, recording.Bytes())
	if err != nil {
		return fmt.Errorf("export the page: %w", err)
	}
	if _, err := io.WriteString(w, page); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// endsElement matches text that cannot stand in an element of a script or a style.
var endsElement = regexp.MustCompile(`(?i)</(script|style)|<!--`)

// inlined is the page with its files in it.
func inlined(parts map[string]string, recording []byte) (string, error) {
	style, script, worker := parts["dist/page.css"], parts["dist/page.js"], parts["dist/worker.js"]
	licences := "lit-html:\n" + parts["dist/lit-html.LICENSE.txt"] + "\nuPlot:\n" + parts["dist/uPlot.LICENSE.txt"] +
		"\nGo:\n" + parts["dist/Go.LICENSE.txt"]
	for _, text := range []string{style, script, worker, licences} {
		if endsElement.MatchString(text) {
			return "", errors.New("a script or a style ends the element that it is in")
		}
	}
	policy := fmt.Sprintf(exportPolicy, hashOf(script), hashOf(style))
	data := func(id, text string) string {
		return `<script type="text/plain" id="` + id + `">` + text + "</script>\n"
	}
	inOrder := []struct{ old, text string }{
		{`<meta charset="utf-8">`, `<meta charset="utf-8">` + "\n" + `<meta http-equiv="Content-Security-Policy" content="` + policy + `">`},
		{`<link rel="stylesheet" href="/dist/uPlot.min.css">` + "\n", ""},
		{`<link rel="stylesheet" href="/web/page.css">`, "<style>" + style + "</style>"},
		{`<script type="module" src="/web/main.js"></script>` + "\n", ""},
		{"</body>", data("recording", base64.StdEncoding.EncodeToString(recording)) +
			data("market", base64.StdEncoding.EncodeToString([]byte(parts["dist/market.wasm.gz"]))) +
			data("worker", worker) + data("licences", licences) + "<script>" + script + "</script>\n</body>"},
	}
	page := parts["web/index.html"]
	for _, r := range inOrder {
		if strings.Count(page, r.old) != 1 {
			return "", fmt.Errorf("web/index.html has not exactly one %s", r.old)
		}
		page = strings.Replace(page, r.old, r.text, 1)
	}
	return page, nil
}

// hashOf is a source of a Content-Security-Policy.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
