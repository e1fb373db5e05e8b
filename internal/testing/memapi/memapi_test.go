package memapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/memapi"
	"github.com/mbcas/mbcas/internal/testing/must"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }

// side is one of the two servers that are compared.
type side struct {
	client.Client
	namespace, node string
	said            []string
	started         func(*corev1.Pod) // waits until a kubelet has started the pod, and has it leave the pod alone
}

// TestAnswersAsTheRealOne sends the same requests to the server in memory and to a real API server, and
// compares what they answer and store.
func TestAnswersAsTheRealOne(t *testing.T) {
	server := apiserver.Start(t)
	kubelet := server.Kubelet(t, "conformance")
	mem := memapi.New(time.Now)
	c, err := client.New(memapi.Config(mem, "test"), client.Options{Scheme: memapi.Scheme, Mapper: memapi.Mapper()})
	must.Succeed(t, err)
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: kubelet.Node}}} {
		must.Succeed(t, mem.Create("test", o))
	}
	sides := []*side{
		{Client: server.Client, namespace: server.Namespace(t), node: kubelet.Node, started: func(p *corev1.Pod) {
			apiserver.WaitFor(t, server.Client, p, "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
			kubelet.Answer(p, apiserver.Ignore)
		}},
		{Client: c, namespace: "ns", node: kubelet.Node, started: func(p *corev1.Pod) {
			memapi.Change(mem, "kubelet", p.Namespace, p.Name, func(p *corev1.Pod) { p.Status = apiserver.Report(p, apiserver.Obey, metav1.Now()) })
		}},
	}
	for _, s := range sides {
		s.play(t)
	}
	for i := range max(len(sides[0].said), len(sides[1].said)) {
		if sides[0].said[i] != sides[1].said[i] {
			t.Errorf("the real server: %s\nin memory:       %s", sides[0].said[i], sides[1].said[i])
		}
	}
}

// say notes an answer.
func (s *side) say(what string, err error, o client.Object) {
	text := what + ": "
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		st := status.Status()
		text += fmt.Sprintf("%d %s", st.Code, st.Reason)
		if st.Details != nil {
			var fields []string
			for _, c := range st.Details.Causes {
				fields = append(fields, c.Field)
			}
			slices.Sort(fields)
			text += fmt.Sprint(" ", slices.Compact(fields))
		}
	case err != nil:
		text += err.Error()
	}
	switch o := o.(type) {
	case *corev1.Pod:
		text += fmt.Sprintf(" generation %d, limits %s, ours %v, possibly %v, others' %v", o.Generation,
			kube.LimitsText(kube.Limits(o)), kube.WrittenByMBCAS(o), kube.PossiblyWrittenByMBCAS(o),
			slices.Sorted(maps.Keys(kube.ResizedByOthers(o))))
	case *v1alpha1.PodAllocation:
		text += fmt.Sprintf(" generation %d, desired %v, declared %v, phase %q", o.Generation, o.Spec.DesiredCPULimit, o.Status.DeclaredLimits, o.Status.Phase)
	}
	s.said = append(s.said, text)
}

// play is the conversation.
func (s *side) play(t *testing.T) {
	ctx := t.Context()
	pod := s.newPod(ctx, "web")
	s.say("create", nil, pod)
	s.say("create again", s.Create(ctx, s.object("web")), nil)
	resizer := podresize.New(s.Client, kube.FieldManager)
	to := func(p *corev1.Pod, from, to int) actuator.Move {
		return actuator.Move{UID: string(p.UID), Changes: []actuator.Change{{Container: "app", From: milli(from), To: milli(to)}}}
	}
	outcome := func(what string, r podresize.Result) {
		s.said = append(s.said, what+": "+r.Outcome.String())
		if r.Pod != nil {
			s.say(what, nil, r.Pod)
		}
	}
	outcome("dry run", resizer.DryRun(ctx, pod, to(pod, 500, 700)))
	s.say("after a dry run", nil, s.get(ctx, "web"))
	first := resizer.Apply(ctx, pod, to(pod, 500, 700))
	outcome("resize", first)
	outcome("resize of a version that is not the last", resizer.Apply(ctx, pod, to(pod, 500, 900)))
	outcome("resize below the request", resizer.Apply(ctx, first.Pod, to(first.Pod, 700, 50)))
	lookalike := first.Pod.DeepCopy()
	lookalike.UID = "11111111-2222-3333-4444-555555555555"
	outcome("resize of another pod", resizer.Apply(ctx, lookalike, actuator.Move{UID: string(lookalike.UID), Changes: to(pod, 700, 900).Changes}))
	both := lookalike.DeepCopy()
	both.ResourceVersion = "1"
	outcome("resize of another pod and version", resizer.Apply(ctx, both, actuator.Move{UID: string(both.UID), Changes: to(pod, 700, 900).Changes}))
	outcome("resize to what it has", resizer.Apply(ctx, first.Pod, to(first.Pod, 700, 700)))
	s.resizeAs(ctx, "another-client", "app", "600m")
	s.resizeAs(ctx, "another-client", "side", "300m")
	outcome("resize after another writer", resizer.Apply(ctx, s.get(ctx, "web"), to(pod, 600, 800)))
	s.resizeAs(ctx, "another-client", "app", "800m") // changes nothing, and takes nothing over
	s.allocations(ctx, pod)
	s.quota(ctx)
	outcome("resize beyond the quota", resizer.Apply(ctx, s.get(ctx, "web"), to(pod, 800, 2000)))
	outcome("resize within the quota", resizer.Apply(ctx, s.get(ctx, "web"), to(pod, 800, 900)))
	outcome("resize down", resizer.Apply(ctx, s.get(ctx, "web"), to(pod, 900, 700)))
	s.used(ctx)
	wrong := types.UID("11111111-2222-3333-4444-555555555555")
	last := s.get(ctx, "web")
	s.say("delete another pod", s.Delete(ctx, last, client.Preconditions{UID: &wrong}), nil)
	s.say("delete", s.Delete(ctx, last, client.GracePeriodSeconds(0)), nil)
	outcome("resize of a pod that is gone", resizer.Apply(ctx, last, to(pod, 700, 900)))
}

func milli(m int) cpu.Milli { return cpu.Milli(m) }

// allocations are the requests about a PodAllocation, by controller and agent.
func (s *side) allocations(ctx context.Context, pod *corev1.Pod) {
	pa := allocation.New(pod)
	pa.Status.Phase = v1alpha1.PhaseApplied // is not stored with the object
	s.say("create an allocation", s.Create(ctx, pa, client.FieldOwner(kube.FieldManager)), pa)
	s.say("create it again", s.Create(ctx, allocation.New(pod)), nil)
	patch := func(what string, status bool, body map[string]any) {
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		got := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: pa.Name}}
		p := client.RawPatch(types.MergePatchType, raw)
		if status {
			err = s.Status().Patch(ctx, got, p, client.FieldOwner(kube.FieldManager))
		} else {
			err = s.Patch(ctx, got, p, client.FieldOwner("mbcas-agent"))
		}
		if err != nil {
			s.say(what, err, nil)
			return
		}
		s.say(what, nil, got)
	}
	type fields = map[string]any
	limits := []fields{{"name": "app", "cpuLimit": "700m"}}
	decision := v1alpha1.Decision{Budget: 100, Floor: 10, Ceiling: 4000, BoundBy: v1alpha1.BoundByNothing, ObservedAt: metav1.NowMicro()}
	decide := fields{"desiredCPULimit": "700m", "containers": limits, "decision": decision}
	patch("decide", false, fields{"metadata": fields{"uid": pa.UID}, "spec": decide, "status": fields{"phase": "Failed"}})
	patch("decide the same", false, fields{"metadata": fields{"uid": pa.UID}, "spec": decide})
	patch("report", true, fields{"metadata": fields{"uid": pa.UID}, "status": fields{"phase": "Applied", "declaredLimits": limits}, "spec": fields{"desiredCPULimit": "100m"}})
	patch("decide for another", false, fields{"metadata": fields{"uid": "11111111-2222-3333-4444-555555555555"}, "spec": decide})
	patch("report an old version", true, fields{"metadata": fields{"resourceVersion": "1"}, "status": fields{"phase": "Failed"}})
	gone := &v1alpha1.PodAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: pa.Namespace, Name: "none"}}
	s.say("report on none", s.Status().Patch(ctx, gone, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`))), nil)
}

func (s *side) object(name string) *corev1.Pod {
	pod := apiserver.Pod(s.namespace, name, apiserver.Container("app", "100m", "500m"), apiserver.Container("side", "50m", "200m"))
	pod.Spec.NodeName = s.node
	return pod
}

func (s *side) newPod(ctx context.Context, name string) *corev1.Pod {
	pod := s.object(name)
	s.say("create pod", s.Create(ctx, pod), nil)
	s.started(pod)
	return s.get(ctx, name)
}

func (s *side) get(ctx context.Context, name string) *corev1.Pod {
	pod := &corev1.Pod{}
	if err := s.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: name}, pod); err != nil {
		s.say("get", err, nil)
	}
	return pod
}

func (s *side) resizeAs(ctx context.Context, manager, container, limit string) {
	patch := `{"spec":{"containers":[{"name":"` + container + `","resources":{"limits":{"cpu":"` + limit + `"}}}]}}`
	pod := s.get(ctx, "web")
	err := s.SubResource("resize").Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner(manager))
	s.say("resize as "+manager, err, pod)
}

func (s *side) quota(ctx context.Context) {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cpu"}}
	q.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("1500m")}
	s.say("create a quota", s.Create(ctx, q), nil)
	q.Status.Hard, q.Status.Used = q.Spec.Hard, corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("1100m")}
	s.say("report of the quota", s.Status().Update(ctx, q), nil)
}

func (s *side) used(ctx context.Context) {
	q := &corev1.ResourceQuota{}
	err := s.Get(ctx, types.NamespacedName{Namespace: s.namespace, Name: "cpu"}, q)
	used := q.Status.Used[corev1.ResourceLimitsCPU]
	s.said = append(s.said, fmt.Sprintf("used %s (%v)", used.String(), err))
}
