package controller

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// healthyPods are raised one after another while resizes of other pods fail; isolationEvery is the time
// from one to the next, so that the budgets of resizes are no bound.
const (
	healthyPods    = 30
	isolationEvery = 250 * time.Millisecond
)

// BenchmarkIsolation runs the controller as it ships, on the real API server with ten nodes, and measures
// how long an increase of a healthy pod takes from its decision until the pod's spec has it: alone, and
// while increases of pods in another namespace, on the same nodes, have to pass an admission webhook that
// hangs for its ten seconds, or that nothing listens for. It reports the median and the mean of the time
// without such pods, and the others as multiples of these.
func BenchmarkIsolation(b *testing.B) {
	for b.Loop() {
		c := startController(b)
		ns := c.server.Namespace(b)
		for i := range benchNodes {
			c.nodes = append(c.nodes, c.server.Kubelet(b, fmt.Sprintf("isolation-%d", i)).Node)
		}
		c.hear(b)
		healthy := c.run(b, ns, "healthy", healthyPods)
		limit := cpu.Milli(300)
		c.raiseAll(b, healthy, limit) // the first resize of a pod has a dry run
		median, mean := c.times(b, healthy, &limit)
		b.ReportMetric(median, "ms-median/without")
		b.ReportMetric(mean, "ms-mean/without")
		for _, sick := range []struct {
			name  string
			pods  int
			hangs bool
		}{{"8-hanging", 8, true}, {"32-hanging", 32, true}, {"150-dead", 150, false}} {
			m, a := c.beside(b, sick.pods, sick.hangs, func() (float64, float64) { return c.times(b, healthy, &limit) })
			b.ReportMetric(m/median, "x-median/"+sick.name)
			b.ReportMetric(a/mean, "x-mean/"+sick.name)
		}
	}
}

// run runs pods on all nodes, and waits until their declared limits are recorded.
func (c *process) run(b *testing.B, namespace, name string, n int) (pods []*corev1.Pod) {
	b.Helper()
	for i := range n {
		pod := apiserver.Pod(namespace, fmt.Sprintf("%s-%d", name, i), apiserver.Container("app", "20m", "200m"))
		pod.Spec.NodeName = c.nodes[i%len(c.nodes)]
		must.Succeed(b, c.server.Client.Create(b.Context(), pod))
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		apiserver.Eventually(b, "the declared limit of "+pod.Name+" is recorded", func() (bool, any) {
			pa := &v1alpha1.PodAllocation{}
			err := c.server.Client.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: string(pod.UID)}, pa)
			return err == nil && len(pa.Status.DeclaredLimits) > 0, err
		})
	}
	return pods
}

// raise decides on a limit of a throttled pod, as its agent would.
func (c *process) raise(b *testing.B, pod *corev1.Pod, limit cpu.Milli) {
	b.Helper()
	c.decide(b, pod, limit, free(limit))
}

// raiseAll raises pods, and waits until all have the limit.
func (c *process) raiseAll(b *testing.B, pods []*corev1.Pod, limit cpu.Milli) {
	b.Helper()
	for _, pod := range pods {
		c.raise(b, pod, limit)
	}
	c.have(b, pods, limit)
}

// have waits until all pods have a limit.
func (c *process) have(b *testing.B, pods []*corev1.Pod, limit cpu.Milli) {
	b.Helper()
	for _, pod := range pods {
		apiserver.Eventually(b, pod.Name+" has its limit", func() (bool, any) { return c.limit(b, pod) == limit, c.limit(b, pod) })
	}
}

func (c *process) limit(b *testing.B, pod *corev1.Pod) cpu.Milli {
	b.Helper()
	got := &corev1.Pod{}
	must.Succeed(b, c.server.Client.Get(b.Context(), client.ObjectKeyFromObject(pod), got))
	return kube.Total(kube.Limits(got))
}

// times raises pods one after another by a half, and returns the median and the mean of the time that this
// took, in milliseconds.
func (c *process) times(b *testing.B, pods []*corev1.Pod, limit *cpu.Milli) (median, mean float64) {
	b.Helper()
	c.hear(b)
	var took []float64
	next := (*limit * 13 / 10).RoundUp(cpu.Quantum)
	for _, pod := range pods {
		began := time.Now()
		c.raise(b, pod, next)
		for c.limit(b, pod) != next {
			if time.Since(began) > time.Minute {
				b.Fatalf("%s is not raised", pod.Name)
			}
			time.Sleep(2 * time.Millisecond)
		}
		passed := time.Since(began)
		took, mean = append(took, passed.Seconds()*1000), mean+passed.Seconds()*1000/float64(len(pods))
		time.Sleep(isolationEvery - passed)
	}
	*limit = next
	slices.Sort(took)
	return took[len(took)/2], mean
}

// beside measures while pods of another namespace wait for their webhook.
func (c *process) beside(b *testing.B, n int, hangs bool, measure func() (median, mean float64)) (median, mean float64) {
	b.Helper()
	ns := c.server.Namespace(b)
	sick := c.run(b, ns, "sick", n)
	ended := make(chan struct{})
	config := apiserver.Webhook(b, func(_ http.ResponseWriter, q *http.Request) {
		select {
		case <-ended:
		case <-q.Context().Done():
		}
	})
	if !hangs {
		nothing := "https://127.0.0.1:1" // no program listens there
		config.URL = &nothing
	}
	none, fail, seconds := admission.SideEffectClassNone, admission.Fail, int32(10)
	hook := &admission.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admission.ValidatingWebhook{{
			Name: "sick.example.com", ClientConfig: config, NamespaceSelector: apiserver.Within(ns),
			Rules: []admission.RuleWithOperations{apiserver.Resizes}, SideEffects: &none, FailurePolicy: &fail,
			TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	must.Succeed(b, c.server.Client.Create(b.Context(), hook))
	time.Sleep(2 * time.Second) // until the API server has taken the webhook in
	for _, pod := range sick {
		c.raise(b, pod, 500)
	}
	median, mean = measure()
	close(ended)
	for _, pod := range sick {
		if c.limit(b, pod) != 200 {
			b.Errorf("%s was resized past its webhook", pod.Name)
		}
	}
	must.Succeed(b, c.server.Client.Delete(b.Context(), hook))
	err := c.server.Client.DeleteAllOf(b.Context(), &corev1.Pod{}, client.InNamespace(ns), client.GracePeriodSeconds(0))
	must.Succeed(b, err)
	return median, mean
}
