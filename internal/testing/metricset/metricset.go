// Package metricset is which metrics the programs describe, for tests that hold pages, rules and dashboards to them.
package metricset

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/mbcas/mbcas/internal/agent"
	"github.com/mbcas/mbcas/internal/buildinfo"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/fleet"
)

// Metric is one of them.
type Metric struct {
	Name, Type, Help string
	Labels           []string
}

// Controller are the metrics of MBCAS that a controller describes, by name.
func Controller() ([]Metric, error) {
	reg := prometheus.NewRegistry()
	metrics.New(reg)
	reg.MustRegister(
		metrics.Leader(nil), &fleet.Collector{Leases: fake.NewFakeClient()},
		buildinfo.Gauge("mbcas_controller_build_info", "1, with the version of the controller and of Go.", ""),
	)
	return of(reg)
}

// Agent are those that an agent describes.
func Agent() ([]Metric, error) { return of(agent.Metrics()) }

// text is how a metric describes itself.
var text = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

func of(reg *prometheus.Registry) (found []Metric, err error) {
	const most = 1000
	descs := make(chan *prometheus.Desc, most)
	reg.Describe(descs)
	close(descs)
	gathered, err := reg.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather: %w", err)
	}
	histogram := map[string]bool{} // none has labels, so each is gathered
	for _, f := range gathered {
		histogram[f.GetName()] = f.GetType() == dto.MetricType_HISTOGRAM
	}
	for d := range descs {
		parts := text.FindStringSubmatch(d.String())
		if parts == nil {
			return nil, fmt.Errorf("a metric describes itself as %s: want the form of client_golang", d)
		}
		m := Metric{Name: parts[1], Type: "gauge", Labels: labels(parts[3] + "," + parts[4])}
		switch {
		case histogram[m.Name]:
			m.Type = "histogram"
		case strings.HasSuffix(m.Name, "_total"): // as Prometheus' lint demands
			m.Type = "counter"
		}
		if m.Help, err = strconv.Unquote(parts[2]); err != nil {
			return nil, fmt.Errorf("help of %s: %w", m.Name, err)
		}
		if strings.HasPrefix(m.Name, "mbcas_") {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	return found, nil
}

func labels(list string) (names []string) {
	for l := range strings.SplitSeq(list, ",") {
		if name, _, _ := strings.Cut(l, "="); name != "" {
			names = append(names, name)
		}
	}
	return names
}
