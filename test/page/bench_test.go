package page_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/page"
	"github.com/mbcas/mbcas/internal/page/figures"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// fullNode is half an hour of a node with 110 pods.
func fullNode(b *testing.B) *record.Recording {
	b.Helper()
	return recordings.Played(b, "hundred-pods", mbcas.DefaultConfig(), 30*time.Minute)
}

// marked is when the page has first done something, in ms after its navigation began.
func (b *tab) marked(name string) float64 {
	b.Helper()
	find := fmt.Sprintf("performance.getEntriesByName(%q)[0]", name)
	b.wait(find)
	return evaluate[float64](b, find+".startTime")
}

// BenchmarkFirstChart is the time from opening a page to its first picture: of half an hour of a full node, and of a
// cluster of 5,000 nodes.
func BenchmarkFirstChart(b *testing.B) {
	rec := fullNode(b)
	for name, bench := range map[string]struct {
		src         figures.Source
		view, drawn string
	}{
		"node":    {fileOf(b, rec), "/node/node-1", "cpu drawn"},
		"cluster": {fleet{}, "/", "cluster drawn"},
	} {
		b.Run(name, func(b *testing.B) {
			sum := 0.0
			for range b.N {
				sum += openAt(b, bench.src, bench.view, "light").marked(bench.drawn)
			}
			b.ReportMetric(sum/float64(b.N), "ms/picture")
		})
	}
}

// goingOn shows the minutes of a recording one second after another, as a node that goes on.
type goingOn struct {
	figures.Source
	live func() *record.Recording
}

func (g goingOn) Cluster(ctx context.Context) (figures.Cluster, error) {
	c, err := g.Source.Cluster(ctx)
	c.Live = true
	return c, err
}

func (g goingOn) Recording(context.Context, string) (*record.Recording, error) { return g.live(), nil }

// BenchmarkUpdate is the time that the page of a full node draws for at each update, with its half hour kept.
func BenchmarkUpdate(b *testing.B) {
	rec := fullNode(b)
	shown := 20
	src := goingOn{fileOf(b, rec), func() *record.Recording {
		shown = min(shown+1, len(rec.Minutes))
		return &record.Recording{About: rec.About, Minutes: rec.Minutes[:shown]}
	}}
	for range b.N {
		p := openAt(b, src, "/node/node-1", "light")
		const draws = "performance.getEntriesByName('draw')"
		p.wait(draws + ".length > 12")
		took := evaluate[[]float64](p, draws+".slice(2).map((d) => d.duration)")
		sum := 0.0
		for _, ms := range took {
			sum += ms
		}
		b.ReportMetric(slices.Max(took), "ms/draw-max")
		b.ReportMetric(sum/float64(len(took)), "ms/draw-mean")
	}
}

// BenchmarkExported is the exported page of half an hour of a full node, opened as a file: its size, the time to
// its first chart, and the time of one what-if over all of it.
func BenchmarkExported(b *testing.B) {
	rec := fullNode(b)
	html := filepath.Join(b.TempDir(), "node-1.html")
	out, err := os.Create(html)
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(page.Export(out, rec), out.Close()); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(html)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/(1<<20), "MiB")
	first, decided := 0.0, 0.0
	for range b.N {
		p := browse(b, "file://"+html+"#/node/node-1", "light")
		first += p.marked("cpu drawn")
		p.wait("document.querySelector('#events li')") // all is replayed
		p.visit("/what-if/node-1")
		p.wait("document.querySelector('#comparison')")
		start := evaluate[float64](p, "performance.now()")
		p.slide("#reserve", 30)
		p.wait("document.querySelector('#pods')")
		decided += evaluate[float64](p, "performance.now()") - start
	}
	b.ReportMetric(first/float64(b.N), "ms/picture")
	b.ReportMetric(decided/float64(b.N), "ms/what-if")
}
