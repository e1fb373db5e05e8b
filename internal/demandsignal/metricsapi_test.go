package demandsignal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// adapter is a metrics adapter behind an API server, in the words of HTTP.
type adapter struct {
	groups  map[string][]string // versions
	answers map[string]func(w http.ResponseWriter)
	asked   []string
}

func (a *adapter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/apis/")
	if versions, ok := a.groups[path]; ok {
		g := metav1.APIGroup{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: path}
		for _, v := range versions {
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: path + "/" + v, Version: v})
		}
		reply(w, g)
		return
	}
	q := req.URL.Query()
	q.Del("timeout")
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	a.asked = append(a.asked, path)
	if answer := a.answers[path]; answer != nil {
		answer(w)
		return
	}
	http.Error(w, "404 page not found", http.StatusNotFound)
}

func reply(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(o); err != nil {
		panic(err)
	}
}

// status is an answer of the API server's own.
func status(code int, reason metav1.StatusReason, message string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)))
	}
}

const measured = "2026-11-20T12:00:00Z" // noon

// values is a list of values as version v of the custom metrics API writes them.
func values(v, kind string, of map[string]string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		var items []any
		for name, value := range of {
			item := map[string]any{"describedObject": map[string]any{"kind": kind, "namespace": "shop", "name": name, "apiVersion": "v1"}, "timestamp": measured, "value": value}
			if v == "v1beta1" {
				item["metricName"] = "queue"
			} else {
				item["metric"] = map[string]any{"name": "queue"}
			}
			items = append(items, item)
		}
		reply(w, map[string]any{"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/" + v, "metadata": map[string]any{}, "items": items})
	}
}

func newAdapter(t *testing.T, a *adapter) *MetricsAPI {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return newAPI(t, server.URL)
}

func newAPI(t *testing.T, host string) *MetricsAPI {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(networkingv1.SchemeGroupVersion.WithKind("Ingress"), meta.RESTScopeNamespace)
	api, err := NewMetricsAPI(&rest.Config{Host: host, QPS: -1}, mapper)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

var (
	queue  = kube.Metric{Type: v1alpha1.PodsMetric, Name: "queue", Selector: labels.Everything()}
	onPath = kube.Metric{Type: v1alpha1.ObjectMetric, Name: "p99", Selector: labels.SelectorFromSet(labels.Set{"path": "buy"}),
		Object: kube.Target{APIVersion: "networking.k8s.io/v1", Kind: "Ingress", Name: "web"}}
	outside = kube.Metric{Type: v1alpha1.ExternalMetric, Name: "p99", Selector: labels.SelectorFromSet(labels.Set{"service": "web"})}
)

// TestReadsMetrics: what is asked of which path, and what comes of the answers.
func TestReadsMetrics(t *testing.T) {
	web := labels.SelectorFromSet(labels.Set{"app": "web"})
	for _, v := range []string{"v1beta2", "v1beta1"} {
		a := &adapter{groups: map[string][]string{"custom.metrics.k8s.io": {v}, "external.metrics.k8s.io": {"v1beta1"}}, answers: map[string]func(http.ResponseWriter){
			"custom.metrics.k8s.io/" + v + "/namespaces/shop/pods/*/queue?labelSelector=app%3Dweb":                               values(v, "Pod", map[string]string{"web-1": "1500m"}),
			"custom.metrics.k8s.io/" + v + "/namespaces/shop/ingresses.networking.k8s.io/web/p99?metricLabelSelector=path%3Dbuy": values(v, "Ingress", map[string]string{"web": "250m"}),
			"external.metrics.k8s.io/v1beta1/namespaces/shop/p99?labelSelector=service%3Dweb": func(w http.ResponseWriter) {
				reply(w, map[string]any{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": []any{
					map[string]any{"metricName": "p99", "metricLabels": map[string]string{"service": "web"}, "timestamp": measured, "value": "2"},
					map[string]any{"metricName": "p99", "timestamp": measured, "value": "1k"},
				}})
			},
		}}
		api := newAdapter(t, a)
		for _, tt := range []struct {
			m    kube.Metric
			want []Value
		}{
			{queue, []Value{{Pod: "web-1", Value: 1.5, At: noon}}},
			{onPath, []Value{{Value: 0.25, At: noon}}},
			{outside, []Value{{Value: 2, At: noon}, {Value: 1000, At: noon}}},
		} {
			got, err := api.Read(t.Context(), "shop", tt.m, web, noon)
			if d := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); err != nil || d != "" {
				t.Errorf("%s, %v: error %v, asked %q\n%s", v, tt.m, err, a.asked, d)
			}
		}
	}
}

// TestReadErrors: each way not to answer has its reason, and a message that says what to do.
func TestReadErrors(t *testing.T) {
	const pods, ingress = "custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/queue", "custom.metrics.k8s.io/v1beta2/namespaces/shop/ingresses.networking.k8s.io/web/p99?metricLabelSelector=path%3Dbuy"
	const external = "external.metrics.k8s.io/v1beta1/namespaces/shop/p99?labelSelector=service%3Dweb"
	const noConnection = "no connection"
	both := map[string][]string{"custom.metrics.k8s.io": {"v1beta1", "v1beta2"}, "external.metrics.k8s.io": {"v1beta1"}}
	empty := func(w http.ResponseWriter) {
		reply(w, map[string]any{"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "items": []any{}})
	}
	garbage := func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>welcome</html>")) }
	unknownKind := onPath
	unknownKind.Object = kube.Target{APIVersion: "example.com/v1", Kind: "Oracle", Name: "web"}
	for name, tt := range map[string]struct {
		groups  map[string][]string
		m       kube.Metric
		path    string
		answer  func(http.ResponseWriter)
		reason  string
		message string
	}{
		"no custom API":           {nil, queue, "", nil, v1alpha1.ReasonMetricsAPIMissing, "does not serve custom.metrics.k8s.io: install"},
		"no external API":         {map[string][]string{"custom.metrics.k8s.io": {"v1beta2"}}, outside, "", nil, v1alpha1.ReasonMetricsAPIMissing, "does not serve external.metrics.k8s.io: install"},
		"a version of later":      {map[string][]string{"custom.metrics.k8s.io": {"v9"}}, queue, "", nil, v1alpha1.ReasonMetricsAPIUnavailable, "[v9]"},
		"no metric of pods":       {both, queue, "", nil, v1alpha1.ReasonMetricMissing, "has no metric queue of the pods: check spec.metric"},
		"no metric of the object": {both, onPath, "", nil, v1alpha1.ReasonMetricMissing, "has no metric p99{path=buy} of Ingress/web: check spec.metric"},
		"no external metric":      {both, outside, "", nil, v1alpha1.ReasonMetricMissing, "has no external metric p99{service=web}: check spec.metric"},
		"no series":               {both, outside, external, empty, v1alpha1.ReasonMetricMissing, "has no value of external metric"},
		"no pod":                  {both, queue, pods, values("v1beta2", "Pod", nil), v1alpha1.ReasonMetricMissing, "has no value of metric queue"},
		"no object":               {both, onPath, ingress, values("v1beta2", "Ingress", nil), v1alpha1.ReasonMetricMissing, "0 results"},
		"two objects":             {both, onPath, ingress, values("v1beta2", "Ingress", map[string]string{"a": "1", "b": "1"}), v1alpha1.ReasonMetricMissing, "2 results"},
		"a kind that is not":      {both, unknownKind, "", nil, v1alpha1.ReasonInvalidMetric, "spec.metric.object.describedObject"},
		"forbidden":               {both, outside, external, status(403, metav1.StatusReasonForbidden, "no"), v1alpha1.ReasonMetricForbidden, "config/rbac/controller_role.yaml"},
		"no identity":             {both, outside, external, status(401, metav1.StatusReasonUnauthorized, "who"), v1alpha1.ReasonMetricForbidden, "may not read"},
		"a bad question":          {both, outside, external, status(400, metav1.StatusReasonBadRequest, "what"), v1alpha1.ReasonInvalidMetric, "does not take the question"},
		"the adapter is down":     {both, queue, pods, status(503, metav1.StatusReasonServiceUnavailable, "down"), v1alpha1.ReasonMetricsAPIUnavailable, "look at the metrics adapter and its APIService"},
		"no connection":           {both, outside, noConnection, nil, v1alpha1.ReasonMetricsAPIUnavailable, "does not answer"},
		"no JSON":                 {both, outside, external, garbage, v1alpha1.ReasonMetricMissing, "no answer"},
		"no number":               {both, queue, pods, values("v1beta2", "Pod", map[string]string{"a": "NaN"}), v1alpha1.ReasonMetricMissing, "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(&adapter{groups: tt.groups, answers: map[string]func(http.ResponseWriter){tt.path: tt.answer}})
			defer server.Close()
			api := newAPI(t, server.URL)
			if tt.path == noConnection {
				server.Close()
			}
			got, err := api.Read(t.Context(), "shop", tt.m, labels.Everything(), noon)
			var u *readError
			if !errors.As(err, &u) || u.reason != tt.reason || !strings.Contains(u.message, tt.message) {
				t.Errorf("values %v, error %v: want %s with %q", got, err, tt.reason, tt.message)
			}
		})
	}
}

// TestMetricsAPIComesAndGoes: a group that is not served is looked for again soon, and one that is gone at once.
func TestMetricsAPIComesAndGoes(t *testing.T) {
	a := &adapter{groups: map[string][]string{}}
	api := newAdapter(t, a)
	reason := func(after time.Duration) string {
		_, err := api.Read(t.Context(), "shop", outside, labels.Everything(), noon.Add(after))
		var u *readError
		if !errors.As(err, &u) {
			t.Fatal(err)
		}
		return u.reason
	}
	const missing, lacks = v1alpha1.ReasonMetricsAPIMissing, v1alpha1.ReasonMetricMissing
	first := reason(0)
	a.groups["external.metrics.k8s.io"] = []string{"v1beta1"}
	second, third := reason(keepMissing-1), reason(keepMissing)
	delete(a.groups, "external.metrics.k8s.io")
	if got, want := []string{first, second, third, reason(keepMissing + 1)}, []string{missing, missing, lacks, missing}; !cmp.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
