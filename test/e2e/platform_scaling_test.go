package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/load/work"
)

// The HPA aims at 100m per pod. The load needs about 230m: more than two pods' worth, and less than
// three's.
const (
	webRequest  = cpu.Milli(50)
	webDeclared = cpu.Milli(150)
	webTarget   = 200 // percent
	webFloor    = webRequest * webTarget / 100 * 12 / 10
	webWork     = 8 * time.Millisecond
	webRate     = 28.0 // requests per second
	mostWebs    = 6
)

// openScaling starts a service under an HPA, and a twin that no HPA scales.
func (p *platform) openScaling(t *testing.T) {
	r := resources{webRequest.String(), webDeclared.String(), "64Mi"}
	p.deploy(t, scaling, "twin", r)
	p.deploy(t, scaling, "web", r)
	utilization := autoscalingv2.MetricTarget{
		Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(webTarget)),
	}
	target := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	p.create(t, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: scaling, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: target,
			MaxReplicas:    mostWebs,
			Metrics: []autoscalingv2.MetricSpec{{
				Type:     autoscalingv2.ResourceMetricSourceType,
				Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU, Target: utilization},
			}},
			// Shorter than the test, so that removed replicas would be noticed.
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{
				ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32(30))},
			},
		},
	})
}

// hpaScalesAndStabilises: while CPU is scarce, pods under an HPA keep at least their declared limit,
// while a pod without one is lowered below it. So the HPA sees their load and adds replicas; their number
// stabilises.
func (p *platform) hpaScalesAndStabilises(t *testing.T) {
	p.needAddons(t)
	p.tellsIfFailed(t)
	pods := p.pods(t, scaling)
	p.calm(t) // a pod gets most of the node only while others leave it
	p.raise(t, time.Minute, pods["web"])
	p.raise(t, time.Minute, pods["twin"])
	c := p.hasNoDecrease(t, pods["web"], reasons.ScaledByHPA)
	if c.FloorBy != "HorizontalPodAutoscaler/web" || len(c.Containers) != 1 || *c.Containers[0].Floor != webFloor {
		t.Errorf("constraints %+v, want a floor of %v", c, webFloor)
	}
	p.contend(t)
	p.spin(t, pods["twin"], 1)
	stop := p.serve(t)
	defer stop()
	desired := p.waitStable(t, 90*time.Second)
	t.Logf("desired replicas: %v", desired)
	if last := desired[len(desired)-1]; last < 2 || last >= mostWebs {
		t.Errorf("desired replicas %v: want them to go up, and not to stay at the maximum", desired)
	}
	for i := 2; i < len(desired); i++ {
		if desired[i-1] < desired[i-2] && desired[i] > desired[i-1] {
			t.Errorf("desired replicas %v: they go down and up again under the same load", desired)
		}
	}
	p.onlyIsLowered(t, scaling, webDeclared, "twin", "web")
	p.spin(t, pods["twin"], 0)
}

// serve sends requests to all replicas that are Ready, in turn, until it is stopped.
func (p *platform) serve(t *testing.T) (stop func()) {
	t.Helper()
	n, err := work.Calibrate(webWork)
	must.Succeed(t, err)
	var mu sync.Mutex
	ready := []string{""}
	turn, listed := 0, time.Time{}
	next := func(ctx context.Context) string {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(listed) > time.Second {
			if now := p.addresses(ctx); len(now) > 0 {
				ready, listed = now, time.Now()
			}
		}
		turn++
		return ready[turn%len(ready)]
	}
	if next(t.Context()) == "" {
		t.Fatal("no replica has an address")
	}
	httpClient := traffic.NewClient(64)
	g := traffic.Generator{InFlight: 512, Timeout: 30 * time.Second, Send: func(ctx context.Context) error {
		_, err := traffic.Get(ctx, httpClient, fmt.Sprintf("http://%s:8080/work?n=%d", next(ctx), n))
		return err
	}}
	arrivals := traffic.Arrivals(1, []traffic.Segment{{For: 20 * time.Minute, Rate: webRate}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.Run(ctx, time.Now(), arrivals, func(traffic.Result) {}) })
	return func() {
		cancel()
		running.Wait()
		httpClient.CloseIdleConnections()
	}
}

// addresses are those of the replicas that are Ready; none where the API server does not answer.
func (p *platform) addresses(ctx context.Context) (ready []string) {
	var list corev1.PodList
	if err := p.List(ctx, &list, client.InNamespace(scaling), client.MatchingLabels{"app": "web"}); err != nil {
		return nil
	}
	for _, pod := range list.Items {
		if isReady(&pod) && pod.DeletionTimestamp == nil {
			ready = append(ready, pod.Status.PodIP)
		}
	}
	return ready
}

// waitStable waits until the HPA has asked for more replicas, has then asked for the same number for so
// long, and all of them are there. It returns the numbers asked for.
func (p *platform) waitStable(t *testing.T, rest time.Duration) (desired []int32) {
	t.Helper()
	since := time.Now()
	p.wait(t, 5*time.Minute, "the number of replicas is stable", func() (bool, string) {
		var hpa autoscalingv2.HorizontalPodAutoscaler
		if err := p.Get(t.Context(), client.ObjectKey{Namespace: scaling, Name: "web"}, &hpa); err != nil {
			return false, err.Error()
		}
		now, ready := hpa.Status.DesiredReplicas, len(p.addresses(t.Context()))
		if len(desired) == 0 || desired[len(desired)-1] != now {
			desired, since = append(desired, now), time.Now()
		}
		stable := time.Since(since).Round(time.Second)
		return now > 1 && int(now) == ready && stable >= rest,
			fmt.Sprintf("desired so far %v, for %v; %d Ready; %+v", desired, stable, ready, hpa.Status.Conditions)
	})
	return desired
}

// openVPAs starts a pod whose VPA comes later. It asks for less than a VPA ever recommends, so that the
// VPA acts on the first recommendation.
func (p *platform) openVPAs(t *testing.T) { p.deployForVPA(t, "late") }

func (p *platform) deployForVPA(t *testing.T, name string) {
	t.Helper()
	p.deploy(t, vpas, name, resources{"10m", "100m", "32Mi"}, func(t *corev1.PodTemplateSpec) {
		t.Labels[guard.Excused] = "vpa"
	})
}

// vpa is a VerticalPodAutoscaler of the CPU of a Deployment.
func (p *platform) vpa(t *testing.T, name, mode string) {
	t.Helper()
	v := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"targetRef":    map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
		"updatePolicy": map[string]any{"updateMode": mode, "minReplicas": int64(1)},
		"resourcePolicy": map[string]any{"containerPolicies": []any{map[string]any{
			"containerName": "*", "controlledResources": []any{"cpu"}, "maxAllowed": map[string]any{"cpu": "200m"},
		}}},
	}}}
	v.SetGroupVersionKind(constraints.VPAKind)
	v.SetNamespace(vpas)
	v.SetName(name)
	p.create(t, v)
}

// vpaIsAddedLater: a pod that MBCAS has raised is given back its declared limit when a VPA comes to write
// its CPU, and its allocation is removed. Another has its VPA before it starts.
func (p *platform) vpaIsAddedLater(t *testing.T) {
	late := p.pods(t, vpas)["late"]
	p.raise(t, time.Minute, late)
	p.needAddons(t)
	p.vpa(t, "late", "InPlaceOrRecreate")
	p.vpa(t, "born", "Recreate")
	p.deployForVPA(t, "born")
	p.has(t, time.Minute, late, 100)
	p.wait(t, 30*time.Second, late.Name+" has no allocation", func() (bool, string) {
		pa, err := p.allocation(t, late)
		return apierrors.IsNotFound(err), orError(err, "%s", summary(pa))
	})
}

// vpaPodsAreNotResized: the VPA has changed its pods by now, and MBCAS has not.
func (p *platform) vpaPodsAreNotResized(t *testing.T) {
	for _, app := range []string{"late", "born"} {
		p.wait(t, 3*time.Minute, "the VPA has changed the request of "+app, func() (bool, string) {
			text := ""
			for _, pod := range p.list(t, vpas, client.MatchingLabels{"app": app}) {
				for _, s := range pod.Status.ContainerStatuses {
					if s.Resources != nil && s.Resources.Requests.Cpu().MilliValue() > 10 {
						return true, ""
					}
					text += fmt.Sprintf("%s %v ", pod.Name, s.Resources)
				}
			}
			return false, text
		})
	}
	if all := p.allocations(t, vpas); all != "" {
		t.Errorf("allocations of pods that a VPA writes:%s", all)
	}
	for name, all := range p.resizes(t, vpas) {
		var own []cpu.Milli
		for _, r := range all {
			if r.user == guard.Controller {
				own = append(own, r.to)
			}
		}
		if restored := slices.Index(own, 100); len(own) > 0 && (restored < 1 || restored != len(own)-1) {
			t.Errorf("MBCAS resized %s to %v, want increases, then 100m and nothing since its VPA came", name, own)
		}
	}
}
