//go:build linux

package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"html/template"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/mbcas/mbcas/test/evaluation/internal/client"
)

// row is a line of the page that the web server renders.
type row struct {
	Name, Note string
	Price      float64
	Stock      int
}

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html><html><head><title>{{.Title}}</title></head><body>
<h1>{{.Title}}</h1><table>{{range $i, $r := .Rows}}
<tr{{if $r.Stock}} class="has"{{end}}><td>{{$i}}</td><td><a href="/item?name={{$r.Name}}">{{$r.Name}}</a></td>` +
	`<td>{{printf "%.2f" $r.Price}}</td><td title="{{$r.Note}}">{{$r.Note}}</td></tr>{{end}}
</table></body></html>
`))

// atOnce is how many pages are rendered at a time. Thousands of requests may wait, and compression takes most of a
// megabyte for each that is begun: more than the pod has.
const atOnce = 64

// atMost lets n requests be handled at a time; more wait. One whose client has gone is dropped.
func atMost(n int, handle http.HandlerFunc) http.HandlerFunc {
	slots := make(chan struct{}, n)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-r.Context().Done():
			return
		}
		handle(w, r)
	}
}

// web renders a page of 200 rows from a template and compresses it: a usual server in Go, that follows its CPU limit by
// GOMAXPROCS as the runtime does unless told otherwise.
func web(ctx context.Context, _ string, ready func()) error {
	rng := rand.New(rand.NewPCG(3, 3))
	rows := make([]row, 200)
	words := corpus(16 << 10)
	for i := range rows {
		at := rng.IntN(len(words) - 80)
		rows[i] = row{
			Name: fmt.Sprintf("article %d", rng.IntN(1e6)), Note: string(words[at : at+40+rng.IntN(40)]),
			Price: rng.Float64() * 100, Stock: rng.IntN(3),
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", atMost(atOnce, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		data := struct {
			Title string
			Rows  []row
		}{"Articles for " + r.URL.Query().Get("user"), rows}
		if err := errors.Join(page.Execute(zip, data), zip.Close()); err != nil && r.Context().Err() == nil {
			fmt.Fprintln(os.Stderr, "mbcas-workload: page:", err)
		}
	}))
	server := &http.Server{Addr: fmt.Sprintf(":%d", client.HTTPPort), Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	ready()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
