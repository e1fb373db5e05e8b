package page_test

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/mbcas/mbcas/internal/lab/mbcas"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/testing/recordings"
)

// TestScreenshots: each view fits its picture in the documentation. With MBCAS_SCREENSHOTS=FOLDER the pictures are
// written, which `make screenshots` does.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	rec, at := evening(t)
	const events = "document.querySelector('#events li')"
	views := []struct{ name, view, ready, act string }{
		{"page-node", "/node/node-1", events + "&& document.querySelector('#book')", ""},
		{"page-incident", fmt.Sprintf("/incident/node-1/%d", at.UnixMilli()),
			events + "&& document.querySelector('#book')", ""},
		{"page-pod", "/pod/node-1/default%2Fhog-1", events + "&& document.querySelector('#why li')", ""},
		{"page-what-if", "/what-if/node-1", "document.querySelector('#equal')", "0.3"},
	}
	b := open(t, fileOf(t, rec), "light")
	b.resize()
	pictures := map[string][]byte{}
	for _, v := range views {
		b.visit(v.view)
		b.wait(v.ready)
		if v.act != "" {
			b.slide("#reserve", 30)
			b.wait("document.querySelector('#pods')")
		}
		pictures[v.name] = b.picture()
	}
	many := open(t, fleet{}, "light")
	many.resize()
	many.wait("document.querySelector('#nodes tbody tr')")
	pictures["page-cluster"] = many.picture()
	for name, picture := range pictures {
		image, err := png.DecodeConfig(bytes.NewReader(picture))
		if err != nil || image.Width != pictureWidth || image.Height != pictureHeight || len(picture) > 200_000 {
			t.Errorf("%s: %d bytes, %+v, %v", name, len(picture), image, err)
		}
		if to := os.Getenv("MBCAS_SCREENSHOTS"); to != "" {
			if err := os.WriteFile(filepath.Join(to, name+".png"), picture, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	b.calm()
	many.calm()
}

const pictureWidth, pictureHeight = 1100, 900

// resize gives the window the size of a picture.
func (b *tab) resize() {
	b.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: pictureWidth, Height: pictureHeight, DeviceScaleFactor: 1,
		})
		return err
	}))
}

// picture is what the window shows, once it is drawn.
func (b *tab) picture() []byte {
	b.Helper()
	evaluate[bool](b, "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))",
		chromedp.EvalAwaitPromise)
	got, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.Fatal(err)
	}
	return got
}

// evening is five minutes of services that batch jobs contend with, and the last time at which CPU becomes scarce.
func evening(t *testing.T) (*record.Recording, time.Time) {
	t.Helper()
	rec := recordings.Played(t, "contended-services-hogs", mbcas.DefaultConfig(), 5*time.Minute)
	var at time.Time
	for _, e := range storyOf(t, rec) {
		if strings.HasPrefix(e.Text, "CPU becomes scarce") {
			at = e.At
		}
	}
	if at.IsZero() {
		t.Fatal("CPU does not become scarce")
	}
	rec.About.Pins = []record.Pin{{At: at, Why: "CPU is scarce"}}
	return rec, at
}
