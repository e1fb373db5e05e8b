package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
)

// The workload of docs/autoscalers.md, beside three apps of the suite, which demand the whole node each. Of a supply
// S a workload with n replicas has the budget line S n r / (n r + h), where r is the request of a replica and h that
// of the apps. It buys a demand D from n = D h / (r (S - D)) replicas on. The node sells at most 1.44 cores, and what
// the programs of this machine use beyond 0.4 cores is missing, up to half of it: with D at 0.4 cores, n is 3 of 1.44
// cores, 5 of one, and 10 of 0.72. The HPA tolerates a tenth of a deficit, and so may stop earlier. While D is more
// than 0.9 n r, which it is up to 11 replicas, there is no scale-in.
const (
	scaled        = "e2e-scaled"
	scaledRequest = cpu.Milli(40)
	scaledWork    = 8 * time.Millisecond
	scaledRate    = 50.0 // requests per second, which with their work are D
	mostScaled    = 12
	// scaleInWindow replaces the five minutes of the documentation.
	scaleInWindow = 45 * time.Second
)

var neighbours = apps[1:]

// anHPAScalesOutAndInAgain: with the manifests of the documentation a real HPA adds replicas while CPU is scarce and
// their budgets do not buy what they demand, stops when they do, and removes them when the load ends. The number goes
// up only, and then down only.
func (m *monitoring) anHPAScalesOutAndInAgain(t *testing.T) {
	m.tellsIfFailed(t)
	hpa := m.openScaled(t)
	least := *hpa.Spec.MinReplicas
	c := &replicaChanges{begin: time.Now()}
	stop := m.serve(t, requests{
		namespace: scaled, app: "web", work: scaledWork, rate: scaledRate, timeout: 3 * time.Second,
	})
	defer stop()
	m.follow(t, c, 3*time.Minute, "the load alone", func(p pressure) bool {
		return c.stands() > 45*time.Second && p.ratio > 0 && p.ratio < 1.1
	})
	if len(c.seen) != 1 || c.last() != least {
		t.Errorf("without scarcity the numbers of replicas are %v, want %d alone", c.seen, least)
	}

	c.seen = c.seen[len(c.seen)-1:]
	for _, app := range neighbours {
		spin(t, m.running(t, app), 4)
	}
	missing := 0.0
	m.follow(t, c, 8*time.Minute, "CPU is scarce", func(p pressure) bool {
		missing = max(missing, p.deficit)
		return c.last() > least && p.ready == int(c.last()) && c.stands() > 75*time.Second && p.ratio < 1.1
	})
	out := slices.Clone(c.seen)
	if !slices.IsSorted(out) || c.last() >= mostScaled {
		t.Errorf("the numbers of replicas are %v, want them to go up only, and to end below %d", out, mostScaled)
	}

	stop()
	c.seen = c.seen[len(c.seen)-1:]
	m.follow(t, c, 5*time.Minute, "the load has ended", func(p pressure) bool {
		return c.last() == least && p.ready == int(least) && c.stands() > 45*time.Second
	})
	in := slices.Clone(c.seen)
	if slices.Reverse(c.seen); !slices.IsSorted(c.seen) {
		t.Errorf("after the load the numbers of replicas are %v, want them to go down only", in)
	}
	t.Logf("replicas %v, then %v: %d changes out and %d in; at most %.0fm were missing", out, in, len(out)-1, len(in)-1,
		1000*missing)
}

// openScaled starts the workload with as many replicas as its HPA keeps, and then that HPA. The apps beside it are
// idle.
func (m *monitoring) openScaled(t *testing.T) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	shipped := yamlOf(t, "docs/autoscalers.md", "apiVersion: autoscaling/v2")
	if err := yaml.UnmarshalStrict([]byte(shipped), hpa); err != nil {
		t.Fatal(err)
	}
	hpa.Namespace, hpa.Spec.MaxReplicas = scaled, mostScaled
	hpa.Spec.Behavior.ScaleDown.StabilizationWindowSeconds = new(int32(scaleInWindow / time.Second))

	m.namespace(t, scaled, "enforce")
	r := resources{scaledRequest.String(), "150m", "32Mi"}
	d := m.deployment(scaled, "web", r, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{kube.ShareSignalKey: "true"}
	})
	d.Spec.Replicas = hpa.Spec.MinReplicas
	m.create(t, d)
	for _, app := range apps {
		spin(t, m.running(t, app), 0)
	}
	m.pods(t, scaled)
	m.serves(t, "/apis/external.metrics.k8s.io/v1beta1/namespaces/"+scaled+
		"/workload_share_pressure?labelSelector=kind%3DDeployment,workload%3Dweb")
	m.create(t, hpa)
	return hpa
}

// replicaChanges are the numbers of replicas that a Deployment was given, one after the other.
type replicaChanges struct {
	begin, since time.Time
	seen         []int32
}

func (c *replicaChanges) last() int32           { return c.seen[len(c.seen)-1] }
func (c *replicaChanges) stands() time.Duration { return time.Since(c.since) }

// pressure is what the rules record of the workload; -1: nothing.
type pressure struct {
	ratio, demand, deficit float64
	ready                  int
}

func (m *monitoring) pressure(t *testing.T) pressure {
	t.Helper()
	read := func(series string) float64 {
		value := -1.0
		found, err := m.query(t, fmt.Sprintf("sum(%s{namespace=%q,workload=%q})", series, scaled, "web"))
		if err == nil && len(found) == 1 {
			_, _ = fmt.Sscan(fmt.Sprint(found[0].Value[1]), &value)
		}
		return value
	}
	return pressure{
		ratio: read("mbcas:workload_share_pressure:ratio"), demand: read("mbcas_workload_demand_cores"),
		deficit: read("mbcas_workload_deficit_cores"), ready: len(m.ready(t.Context(), scaled, "web")),
	}
}

// follow looks once a second at the number of replicas and notes each change, until the state is as wanted. It counts
// anew for how long the number stands.
func (m *monitoring) follow(
	t *testing.T, c *replicaChanges, most time.Duration, while string, is func(pressure) bool,
) {
	t.Helper()
	c.since = time.Now()
	var p pressure
	tell := func(what string) {
		t.Logf("%v, %s: %d replicas %s, at the ratio %.2f, with a demand of %.2f cores, of which %.2f are missing",
			time.Since(c.begin).Round(time.Second), while, c.last(), what, p.ratio, p.demand, p.deficit)
	}
	var looked time.Time
	var state string
	wait(t, most, "the number of replicas while "+while, func() (bool, string) {
		if time.Since(looked) < time.Second {
			return false, state
		}
		looked = time.Now()
		var d appsv1.Deployment
		if err := m.Get(t.Context(), client.ObjectKey{Namespace: scaled, Name: "web"}, &d); err != nil {
			return false, err.Error()
		}
		p = m.pressure(t)
		if now := *d.Spec.Replicas; len(c.seen) == 0 || c.last() != now {
			c.seen, c.since = append(c.seen, now), time.Now()
			tell("from now on")
		}
		state = fmt.Sprintf("%v, the last for %v; %+v%s", c.seen, c.stands().Round(time.Second), p,
			m.allocations(t, scaled))
		return is(p), state
	})
	tell("stay")
}

// asking is the namespace of the service that asks for more CPU by signals.
const asking = "e2e-asking"

// signalsFollowTheirMetrics: with the samples of the repository and the rules of the documentation, a service that is
// slow beyond its share, and has a queue, has its demand multiplied, by a metric of each API. When the requests have
// ended, the latency has no value, and does not count any more.
func (m *monitoring) signalsFollowTheirMetrics(t *testing.T) {
	m.tellsIfFailed(t)
	m.namespace(t, asking, "enforce")
	m.deploy(t, asking, "front", resources{"100m", "150m", "32Mi"})
	pod := m.pods(t, asking)["front"]
	defer apply(t, strings.ReplaceAll(readFile(t, "config/samples/demand-signal.yaml"), "mbcas-shop", asking))()
	for _, name := range []string{"front-latency", "front-queue"} {
		m.waitSignal(t, time.Minute, name, v1alpha1.ReasonMetricMissing, func(percent int32) bool {
			return percent == 0
		})
	}

	for _, app := range apps { // as they were before the HPA
		spin(t, m.running(t, app), 4)
	}
	stop := m.serve(t, requests{ // 0.4 cores: more than a fifth of what the node sells
		namespace: asking, app: "front", work: scaledWork, rate: scaledRate, timeout: 3 * time.Second,
		began: m.exported.of(asking, "front"),
	})
	defer stop()
	m.serves(t, "/apis/external.metrics.k8s.io/v1beta1/namespaces/"+asking+
		"/http_request_duration_p99_seconds?labelSelector=service%3Dfront")
	m.serves(t, "/apis/custom.metrics.k8s.io/v1beta1/namespaces/"+asking+"/pods/*/requests_waiting")
	const more = 110 // percent, after two steps of 5 points
	for _, name := range []string{"front-latency", "front-queue"} {
		m.waitSignal(t, 3*time.Minute, name, v1alpha1.ReasonMetricRead, func(percent int32) bool {
			return percent >= more
		})
	}
	what := fmt.Sprintf("its demand counts for %d %% or more, by both signals", more)
	c := m.waitConstraints(t, time.Minute, pod, what, func(c *v1alpha1.Constraints) bool {
		return c.DemandPercent != nil && *c.DemandPercent >= more
	})
	t.Logf("the demand of %s counts for %d %%, by %s", pod.Name, *c.DemandPercent, c.DemandBy)

	stop()
	m.waitSignal(t, 4*time.Minute, "front-latency", v1alpha1.ReasonMetricMissing, func(percent int32) bool {
		return percent == 0
	})
	m.waitSignal(t, time.Minute, "front-queue", v1alpha1.ReasonMetricRead, func(percent int32) bool {
		return percent < *c.DemandPercent
	})
}

// waitSignal waits until a DemandSignal has that reason, and such a percentage; 0: none.
func (m *monitoring) waitSignal(t *testing.T, most time.Duration, name, reason string, is func(percent int32) bool) {
	t.Helper()
	wait(t, most, fmt.Sprintf("the DemandSignal %s has the reason %s", name, reason), func() (bool, string) {
		var d v1alpha1.DemandSignal
		if err := m.Get(t.Context(), client.ObjectKey{Namespace: asking, Name: name}, &d); err != nil {
			return false, err.Error()
		}
		c, percent := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable), int32(0)
		if p := d.Status.DemandPercent; p != nil {
			percent = *p
		}
		return c != nil && c.Reason == reason && is(percent),
			fmt.Sprintf("%d %%, %v of the metric, %+v", percent, d.Status.Current, c)
	})
}
