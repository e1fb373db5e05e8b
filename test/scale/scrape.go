package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// families are the metrics of one program at one time.
type families map[string]*dto.MetricFamily

// snapshot is the metrics of all programs.
type snapshot struct {
	at                    time.Time
	api, etcd, controller families
}

// scrape reads the metrics of all programs.
func (w *world) scrape(ctx context.Context) (s snapshot, err error) {
	s.at = time.Now()
	hc, err := rest.HTTPClientFor(w.api.Config)
	if err != nil {
		return s, err
	}
	if s.api, err = read(ctx, hc, strings.TrimSuffix(w.api.Config.Host, "/")+"/metrics"); err != nil {
		return s, err
	}
	if s.etcd, err = read(ctx, nil, w.api.Etcd()+"/metrics"); err != nil {
		return s, err
	}
	if s.controller, err = read(ctx, nil, w.process.metrics); err != nil {
		return s, w.died(err)
	}
	return s, nil
}

// died is the end of the controller if it has ended, which says more than err.
func (w *world) died(err error) error {
	if ended := w.process.alive(); ended != nil {
		return ended
	}
	return err
}

// read reads one page of metrics.
func read(ctx context.Context, hc *http.Client, url string) (families, error) {
	if hc == nil {
		hc = http.DefaultClient
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := hc.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // for the message only
		return nil, fmt.Errorf("read metrics from %s: %s %s", url, response.Status, text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics from %s: %w", url, err)
	}
	return found, nil
}

// writeProfile writes where the API server uses the CPU for some seconds of a phase.
func (w *world) writeProfile(ctx context.Context, phase string) {
	text, err := w.core.Discovery().RESTClient().Get().AbsPath("/debug/pprof/profile").Param("seconds", "20").DoRaw(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(w.out, "apiserver-"+phase+".pprof"), text, 0o644)
	}
	if err != nil {
		w.progress.say("no profile of phase %s: %v", phase, err)
	}
}

// labels are those of a series.
type labels map[string]string

func labelsOf(m *dto.Metric) labels {
	l := labels{}
	for _, p := range m.GetLabel() {
		l[p.GetName()] = p.GetValue()
	}
	return l
}

func (l labels) match(want labels) bool {
	for name, value := range want {
		if l[name] != value {
			return false
		}
	}
	return true
}

// sum adds up the series of a counter or a gauge whose labels match.
func (f families) sum(name string, want labels) (sum float64) {
	for _, m := range f[name].GetMetric() {
		if labelsOf(m).match(want) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return sum
}

// by adds up the series of a counter by what key says of their labels; "" leaves one out.
func (f families) by(name string, key func(labels) string) map[string]float64 {
	sums := map[string]float64{}
	for _, m := range f[name].GetMetric() {
		if k := key(labelsOf(m)); k != "" {
			sums[k] += m.GetCounter().GetValue()
		}
	}
	return sums
}

// distribution is the cumulative counts of a histogram by upper bound.
type distribution map[float64]float64

// histogram adds up the series of a histogram whose labels match.
func (f families) histogram(name string, want labels) distribution {
	d := distribution{}
	for _, m := range f[name].GetMetric() {
		if !labelsOf(m).match(want) {
			continue
		}
		for _, b := range m.GetHistogram().GetBucket() {
			d[b.GetUpperBound()] += float64(b.GetCumulativeCount())
		}
		d[math.Inf(1)] = max(d[math.Inf(1)], 0) + float64(m.GetHistogram().GetSampleCount())
		if last := m.GetHistogram().GetBucket(); len(last) > 0 && math.IsInf(last[len(last)-1].GetUpperBound(), 1) {
			d[math.Inf(1)] -= float64(m.GetHistogram().GetSampleCount()) // it was counted as a bucket, too
		}
	}
	return d
}

// since is what was observed after an earlier state.
func (d distribution) since(before distribution) distribution {
	out := distribution{}
	for bound, n := range d {
		out[bound] = n - before[bound]
	}
	return out
}

func (d distribution) count() float64 { return d[math.Inf(1)] }

// quantile is the value below which a share of the observations lies, interpolated in its bucket;
// NaN without any.
func (d distribution) quantile(q float64) float64 {
	bounds := make([]float64, 0, len(d))
	for b := range d {
		bounds = append(bounds, b)
	}
	slices.Sort(bounds)
	rank := q * d.count()
	if rank == 0 {
		return math.NaN()
	}
	low, below := 0.0, 0.0
	for _, b := range bounds {
		if d[b] >= rank {
			if math.IsInf(b, 1) {
				return low
			}
			return low + (b-low)*(rank-below)/max(1, d[b]-below)
		}
		low, below = b, d[b]
	}
	return math.NaN()
}

// writeVerbs are the verbs that change objects.
var writeVerbs = []string{"POST", "PUT", "PATCH", "DELETE", "APPLY", "DELETECOLLECTION"}

// writeKind names a request that changes something; "" for any other.
func writeKind(l labels) string {
	refused := strings.HasPrefix(l["code"], "4") || strings.HasPrefix(l["code"], "5")
	if refused || !slices.Contains(writeVerbs, l["verb"]) {
		return ""
	}
	if l["resource"] == "" || strings.HasSuffix(l["resource"], "reviews") || l["dry_run"] != "" {
		return ""
	}
	kind := l["resource"]
	if l["subresource"] != "" {
		kind += "/" + l["subresource"]
	}
	return strings.ToLower(l["verb"]) + " " + kind
}

// notOurs are the writes that stand for kubelets and workloads, not for MBCAS.
var notOurs = map[string]bool{
	"patch pods/status": true, "delete pods": true, "post pods": true,
	"patch namespaces": true, "post namespaces": true,
	"put nodes": true, "put nodes/status": true, "patch nodes": true, "patch nodes/status": true,
}

// difference is what each counter grew by.
func difference(after, before map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for k, v := range after {
		if d := v - before[k]; d != 0 {
			out[k] = d
		}
	}
	return out
}
