package objects

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mbcas/mbcas/test/evaluation/internal/plan"
)

func TestOnlyThePolicyDiffers(t *testing.T) {
	p := plan.Default(false, true)
	for _, s := range p.Situations {
		want := deployments(t, plan.Cell{Situation: s, Policy: p.Policies[0]})
		for _, policy := range p.Policies {
			cell := plan.Cell{Situation: s, Policy: policy}
			got := deployments(t, cell)
			for i := range got {
				limits := got[i].Spec.Template.Spec.Containers[0].Resources.Limits
				w := s.Workloads[i]
				limit, has := limits[corev1.ResourceCPU]
				value, limited := int64(w.Limit), !policy.NoLimits
				if policy.Cap && w.Batch() {
					value, limited = int64(w.Cap), true
				}
				if has != limited || has && limit.MilliValue() != value {
					t.Errorf("%s, %s: limit of %s is %v", s.Name, policy.Name, w.Name, &limit)
				}
				limits[corev1.ResourceCPU] = milli(w.Limit)
				if got[i].Namespace != Namespace(cell) {
					t.Errorf("%s is in namespace %s, want %s", w.Name, got[i].Namespace, Namespace(cell))
				}
				got[i].Namespace = want[i].Namespace
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s differs in more than limits:\n%s", s.Name, policy.Name, d)
			}
			vpas, hpas, services := 0, 0, 0
			for _, o := range Workloads(cell, "n") {
				switch o := o.(type) {
				case *unstructured.Unstructured:
					got, _, _ := unstructured.NestedString(o.Object, "spec", "updatePolicy", "updateMode")
					if vpas++; got != policy.VPA {
						t.Errorf("%s: update mode %s, want %s", policy.Name, got, policy.VPA)
					}
				case *autoscalingv2.HorizontalPodAutoscaler:
					hpas++
				}
			}
			for _, w := range s.Workloads {
				if !w.Batch() {
					services++
				}
			}
			if (vpas == len(s.Workloads)) != (policy.VPA != "") || (hpas == services) != policy.HPA {
				t.Errorf("%s, %s: %d VPAs, %d HPAs", s.Name, policy.Name, vpas, hpas)
			}
		}
	}
}

func deployments(t *testing.T, c plan.Cell) (all []*appsv1.Deployment) {
	t.Helper()
	for _, o := range Workloads(c, "n") {
		if d, ok := o.(*appsv1.Deployment); ok {
			all = append(all, d)
		}
	}
	if len(all) != len(c.Situation.Workloads) {
		t.Fatalf("%d Deployments, want %d", len(all), len(c.Situation.Workloads))
	}
	return all
}

// TestUpdatedPodsDrain: of a Deployment that is updated under load, and only of that.
func TestUpdatedPodsDrain(t *testing.T) {
	w := []plan.Workload{{Name: "web", Kind: "web"}, {Name: "redis", Kind: "redis"}}
	c := plan.Cell{Situation: plan.Situation{Rollout: "web", Workloads: w}}
	for i, d := range deployments(t, c) {
		spec := d.Spec.Template.Spec
		drains, grace := spec.Containers[0].Lifecycle != nil, *spec.TerminationGracePeriodSeconds
		if drains != (i == 0) || drains && grace < 5 {
			t.Errorf("%s drains: %v, in %d s", d.Name, drains, grace)
		}
	}
}

// TestTunedVPA: every workload has a VPA, also the batch job. Tuned requests fit the node, and none is above its limit.
func TestTunedVPA(t *testing.T) {
	p := plan.Default(false, true)
	tuned, ok := p.Policy(plan.VPATuned)
	if !ok {
		t.Fatal("no such policy")
	}
	for _, s := range p.Situations {
		var sum int64
		seen := map[string]int64{}
		for _, o := range Workloads(plan.Cell{Situation: s, Policy: tuned}, "n") {
			u, ok := o.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			all, _, _ := unstructured.NestedSlice(u.Object, "spec", "resourcePolicy", "containerPolicies")
			one := all[0].(map[string]any)
			text, _, _ := unstructured.NestedString(one, "maxAllowed", "cpu")
			q := resource.MustParse(text)
			seen[u.GetName()] = q.MilliValue()
			sum += q.MilliValue()
			names, _, _ := unstructured.NestedSlice(u.Object, "spec", "recommenders")
			if len(names) != 1 || one["controlledValues"] != "RequestsOnly" {
				t.Errorf("%s: recommenders %v, %v", s.Name, names, one["controlledValues"])
			}
		}
		for _, w := range s.Workloads {
			most, ok := seen[w.Name]
			if !ok || most <= 0 || most > int64(w.Limit) || w.Batch() && most > int64(w.Request) {
				t.Errorf("%s: %s may request %dm, limit %v", s.Name, w.Name, most, w.Limit)
			}
		}
		if sum > int64(plan.Allocatable) {
			t.Errorf("%s: requests of %dm may not fit %v", s.Name, sum, plan.Allocatable)
		}
	}
}

func TestMode(t *testing.T) {
	for _, p := range plan.Default(false, false).Policies {
		want := map[bool]string{true: "enforce", false: "off"}[p.MBCAS]
		labels := NewNamespace(plan.Cell{Policy: p}).GetLabels()
		if got := labels[mode]; got != want {
			t.Errorf("%s: mode %q, want %q", p.Name, got, want)
		}
		if got := labels["mbcas.io/weights"] == "allow"; got != (p.Name == plan.Weights) {
			t.Errorf("%s: weights are allowed: %v", p.Name, got)
		}
	}
}

func TestClassDoesNotPreempt(t *testing.T) {
	class := Class().(*schedulingv1.PriorityClass)
	if class.PreemptionPolicy == nil || *class.PreemptionPolicy != corev1.PreemptNever {
		t.Error("it preempts")
	}
}
