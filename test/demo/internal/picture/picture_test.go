package picture

import (
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/demo/internal/record"
	"github.com/mbcas/mbcas/test/demo/internal/script"
	"github.com/mbcas/mbcas/test/internal/chart"
)

// canned is a run as it could have been, with a limit that moves or none.
func canned(name string, quota func(second int) int64) record.Run {
	r := record.Run{Name: name, Script: script.New(true)}
	for second := range int(r.Script.Length() / time.Second) {
		at := time.Duration(second) * time.Second
		phase := r.Script.At(at)
		for _, app := range []string{script.Checkout, script.Hog, script.CheckoutTold, script.HogTold} {
			s := record.Sample{At: at, Phase: phase.Name, App: app, Quota: quota(second), Use: int64(8 * phase.Rates[app])}
			if phase.Rates[app] > 0 {
				s.P99 = 20 + 200*math.Abs(math.Sin(float64(second)/9))
			}
			r.Samples = append(r.Samples, s)
		}
	}
	return r
}

func TestDraws(t *testing.T) {
	for name, lanes := range map[string][]Lane{
		"nothing": nil,
		"empty":   {{"Empty", chart.Grey, record.Run{Script: script.New(true)}}},
		"three": {
			{"As declared", chart.Grey, canned("static", func(int) int64 { return 500 })},
			{"Without limits", chart.Orange, canned("no_limit", func(int) int64 { return 0 })},
			{"MBCAS", chart.Green, canned("mbcas", func(s int) int64 { return 500 + 30*int64(s%37) })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out", "demo")
			if err := Write(path, lanes); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path + ".png")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := png.Decode(f); err != nil {
				t.Error(err)
			}
			svg, err := os.ReadFile(path + ".svg")
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range lanes {
				if !strings.Contains(string(svg), l.Title) {
					t.Errorf("picture does not name the run %q", l.Title)
				}
			}
		})
	}
}
