package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/constraints"
	"github.com/mbcas/mbcas/test/internal/audit"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/load/work"
)

// The HPA aims at 100m per pod. The load needs about 230m: more than two pods' worth, and less than three's.
const (
	webRequest  = cpu.Milli(50)
	webDeclared = cpu.Milli(150)
	webTarget   = 200 // percent
	webFloor    = webRequest * webTarget / 100 * 12 / 10
	webWork     = 8 * time.Millisecond
	webRate     = 28.0 // requests per second
	mostWebs    = 6
)

func (p *platform) openScaling(t *testing.T) {
	p.deploy(t, scaling, "web", resources{webRequest.String(), webDeclared.String(), "64Mi"}, func(t *corev1.PodTemplateSpec) {
		t.Spec.Containers[0].Args = []string{"serve"}
	})
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	hpa.Namespace, hpa.Name = scaling, "web"
	percent, window := int32(webTarget), int32(30) // shorter than the test, so that removed replicas would be noticed
	hpa.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		MaxReplicas:    mostWebs,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		}}},
		Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: &window}},
	}
	if err := p.Create(t.Context(), hpa); err != nil {
		t.Fatal(err)
	}
}

// hpaScalesAndStabilises: while CPU is scarce, pods under an HPA keep at least their declared limit, so that it sees their load and adds
// replicas; their number stabilises.
func (p *platform) hpaScalesAndStabilises(t *testing.T) {
	p.needAddons(t)
	web := p.pods(t, scaling)["web"]
	p.reaches(t, time.Minute, web, "has the ceiling", func(q cpu.Milli) bool { return q == p.ceiling })
	pa := p.waitAllocation(t, time.Minute, web, "has the constraint of the HPA", func(pa *v1alpha1.PodAllocation) bool { return noDecreaseFor(pa, reasons.ScaledByHPA) })
	if c := pa.Status.Constraints; c.FloorBy != "HorizontalPodAutoscaler/web" || len(c.Containers) != 1 || *c.Containers[0].Floor != webFloor {
		t.Errorf("constraints %s, want a floor of %v", constraintsText(c), webFloor)
	}
	p.contend(t)
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
	if low := p.loweredBelow(t, scaling, webDeclared); len(low) > 0 {
		t.Errorf("pods under the HPA were lowered below their declared limit of %v: %v", webDeclared, low)
	}
	if q := p.quota(t, p.contended["other"]); !p.isLowered(q) {
		t.Errorf("there was no contention: a pod without an HPA has %v", q)
	}
}

// serve sends requests to all replicas that are Ready, in turn, until it is stopped.
func (p *platform) serve(t *testing.T) (stop func()) {
	t.Helper()
	n, err := work.Calibrate(webWork)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var ready []string
	turn := 0
	httpClient := traffic.NewClient(64)
	g := traffic.Generator{InFlight: 512, Timeout: 30 * time.Second, Send: func(ctx context.Context) error {
		mu.Lock()
		turn++
		to := ready[turn%len(ready)]
		mu.Unlock()
		return traffic.Get(httpClient, "http://"+to+":8080/work?n="+strconv.Itoa(n))(ctx)
	}}
	refresh := func() error {
		now, err := p.addresses(ctx, scaling)
		if err == nil && len(now) > 0 {
			mu.Lock()
			ready = now
			mu.Unlock()
		}
		return err
	}
	if err := refresh(); err != nil || len(ready) == 0 {
		t.Fatalf("%d replicas are Ready, %v", len(ready), err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		g.Run(ctx, time.Now(), traffic.Arrivals(1, []traffic.Segment{{For: 20 * time.Minute, Rate: webRate}}), func(traffic.Result) {})
	})
	running.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = refresh() // the next one comes soon
			}
		}
	})
	return func() { cancel(); running.Wait(); httpClient.CloseIdleConnections() }
}

// addresses are those of the namespace's Ready pods.
func (s *suite) addresses(ctx context.Context, namespace string) (ready []string, err error) {
	var list corev1.PodList
	if err := s.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for _, pod := range list.Items {
		isReady := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if isReady && pod.DeletionTimestamp == nil {
			ready = append(ready, pod.Status.PodIP)
		}
	}
	return ready, nil
}

// waitStable waits until the HPA has asked for more replicas, has then asked for the same number for so long, and all of them
// are there. It returns the numbers asked for.
func (p *platform) waitStable(t *testing.T, rest time.Duration) (desired []int32) {
	t.Helper()
	since := time.Now()
	wait(t, 5*time.Minute, "the number of replicas is stable", func(ctx context.Context) (bool, string) {
		var hpa autoscalingv2.HorizontalPodAutoscaler
		if err := p.Get(ctx, client.ObjectKey{Namespace: scaling, Name: "web"}, &hpa); err != nil {
			return false, err.Error()
		}
		now := hpa.Status.DesiredReplicas
		if len(desired) == 0 || desired[len(desired)-1] != now {
			desired, since = append(desired, now), time.Now()
		}
		ready, err := p.addresses(ctx, scaling)
		return now > 1 && int(now) == len(ready) && time.Since(since) >= rest,
			orError(err, "desired so far %v, for %v; %d Ready; %+v", desired, time.Since(since).Round(time.Second), len(ready), hpa.Status.Conditions)
	})
	return desired
}

// requestedLimit is the total limit of a resize.
func requestedLimit(e audit.Event) (sum cpu.Milli) {
	var pod corev1.Pod
	if json.Unmarshal(e.RequestObject, &pod) != nil {
		return 0
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		sum += cpu.Milli(c.Resources.Limits.Cpu().MilliValue())
	}
	return sum
}

// openVPAs starts a pod whose VPA comes later, and one whose VPA is there before it. Both ask for less than a VPA ever recommends,
// so that it acts on the first recommendation.
func (p *platform) openVPAs(t *testing.T) {
	excused := func(t *corev1.PodTemplateSpec) { t.Labels[guard.Excused] = "vpa" }
	p.deploy(t, vpas, "late", resources{"10m", "100m", "32Mi"}, excused)
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
	if err := p.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
}

// vpaIsAddedLater: a pod that we have raised is given back its declared limit when a VPA comes to write its CPU, and forgotten. Another
// has its VPA before it starts.
func (p *platform) vpaIsAddedLater(t *testing.T) {
	late := p.pods(t, vpas)["late"]
	p.reaches(t, time.Minute, late, "has the ceiling", func(q cpu.Milli) bool { return q == p.ceiling })
	p.needAddons(t)
	p.vpa(t, "late", "InPlaceOrRecreate")
	p.vpa(t, "born", "Recreate")
	p.deploy(t, vpas, "born", resources{"10m", "100m", "32Mi"}, func(t *corev1.PodTemplateSpec) { t.Labels[guard.Excused] = "vpa" })
	p.reaches(t, time.Minute, late, "has its declared limit", func(q cpu.Milli) bool { return q == 100 })
	p.waitNoAllocation(t, 30*time.Second, late)
}

// vpaPodsAreNotResized: the VPA has changed its pods by now, and we have not.
func (p *platform) vpaPodsAreNotResized(t *testing.T) {
	for _, app := range []string{"late", "born"} {
		wait(t, 3*time.Minute, "the VPA has changed the request of "+app, func(ctx context.Context) (bool, string) {
			var list corev1.PodList
			if err := p.List(ctx, &list, client.InNamespace(vpas), client.MatchingLabels{"app": app}); err != nil {
				return false, err.Error()
			}
			text := ""
			for _, pod := range list.Items {
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
	var list v1alpha1.PodAllocationList
	if err := p.List(t.Context(), &list, client.InNamespace(vpas)); err != nil || len(list.Items) > 0 {
		t.Errorf("%d allocations of pods that a VPA writes, %v", len(list.Items), err)
	}
	for name, events := range p.resizes(t, vpas) {
		var ours []cpu.Milli
		for _, e := range events {
			if e.User.Username == guard.Controller {
				ours = append(ours, requestedLimit(e))
			}
		}
		if want := []cpu.Milli{p.ceiling, 100}; len(ours) > 0 && !slices.Equal(ours, want) {
			t.Errorf("%s was resized to %v by us, want %v and nothing since its VPA came", name, ours, want)
		}
	}
}
