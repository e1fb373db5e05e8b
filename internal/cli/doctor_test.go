package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/doctor"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// edit changes the object of that kind and name in a list of objects.
func edit[T client.Object](t *testing.T, objects []client.Object, name string, with func(T)) {
	t.Helper()
	for _, o := range objects {
		if typed, ok := o.(T); ok && o.GetName() == name {
			with(typed)
			return
		}
	}
	t.Fatalf("no object %s to edit", name)
}

// without leaves out the objects of a name.
func without(objects []client.Object, name string) []client.Object {
	var rest []client.Object
	for _, o := range objects {
		if o.GetName() != name {
			rest = append(rest, o)
		}
	}
	return rest
}

// unhealthy is the shop with every fault that still lets doctor read objects.
func unhealthy(t *testing.T) []client.Object {
	objects := shop()
	edit(t, objects, cluster.ControllerName, func(d *appsv1.Deployment) {
		d.Status.ReadyReplicas = 0
		d.Spec.Template.Spec.Containers[0].Image = "mbcas.io/controller:v2"
	})
	pod := apiserver.RunningPod(kube.SystemNamespace, cluster.ControllerName+"-5d4f-x", apiserver.Container("controller", "20m", ""))
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	edit(t, objects, cluster.AgentName, func(d *appsv1.DaemonSet) { d.Status.DesiredNumberScheduled = 4 })
	edit(t, objects, kube.AgentLease("node-1"), func(l *coordinationv1.Lease) { l.Spec.RenewTime = ago(4 * time.Minute) })
	edit(t, objects, "node-1", func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue})
		n.Status.NodeInfo.ContainerRuntimeVersion = "docker://28.0.0"
	})
	edit(t, objects, cluster.CRDName, func(c *apiextensionsv1.CustomResourceDefinition) { c.Status.Conditions = nil })
	edit(t, objects, "lab", func(n *corev1.Namespace) { n.Labels[kube.ModeLabel] = "on" })
	edit(t, objects, "shop", func(n *corev1.Namespace) {
		n.Annotations = map[string]string{kube.BelowDeclaredKey: "", kube.MaxRaiseKey: "0"}
	})
	for name, version := range map[string]string{"node-2": "v1.30.1", "node-3": "v1.38.0", "node-4": "v1.36.3"} {
		n := &corev1.Node{}
		n.Name = name
		n.Status.NodeInfo = corev1.NodeSystemInfo{OperatingSystem: "linux", KubeletVersion: version, ContainerRuntimeVersion: "containerd://2.1.0"}
		if name == "node-4" {
			n.Status.NodeInfo.OperatingSystem = "windows"
		}
		objects = append(objects, n)
	}
	old := apiserver.RunningPod("shop", "old-1", apiserver.Container("app", "100m", "200m"))
	old.Spec.NodeName, old.Status.ContainerStatuses[0].Resources = "node-2", nil
	ranged := &corev1.LimitRange{}
	ranged.Namespace, ranged.Name = "shop", "defaults"
	ranged.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}}
	quota := &corev1.ResourceQuota{}
	quota.Namespace, quota.Name = "shop", "all"
	quota.Spec.Hard = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("4")}
	quota.Status.Hard = quota.Spec.Hard
	quota.Status.Used = corev1.ResourceList{corev1.ResourceLimitsCPU: resource.MustParse("3900m")}
	full := &corev1.ResourceQuota{}
	full.Namespace, full.Name = "lab", "small"
	full.Spec, full.Status = quota.Spec, quota.Status
	pause := &corev1.ConfigMap{Data: map[string]string{kube.PausedKey: "incident 4711"}}
	pause.Namespace, pause.Name = kube.SystemNamespace, kube.SwitchName
	return append(objects, pod, old, ranged, quota, full, pause)
}

// TestDoctor shows the findings of clusters with faults, in testdata/doctor-*.txt. Findings that are
// OK are in doctor.txt and constraints-doctor.txt.
func TestDoctor(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New(`User "dev" cannot list resource "things"`))
	for name, c := range map[string]struct {
		objects []client.Object
		with    func(*fakeCluster)
		fails   bool
	}{
		"bare":      {objects: without(without(without(installation(), cluster.CRDName), cluster.ControllerName), cluster.AgentName), fails: true},
		"unhealthy": {objects: unhealthy(t), with: func(c *fakeCluster) { c.may = func(u, _, r string) bool { return u == "" || r != "pods/resize" } }, fails: true},
		"old":       {objects: shop(), with: func(c *fakeCluster) { c.Discovery = discovered{version: "v1.31.4"} }, fails: true},
		"unreachable": {with: func(c *fakeCluster) {
			c.Discovery = discovered{err: errors.New("dial tcp 10.0.0.1:443: connection refused")}
		}, fails: true},
		"rounds": {objects: shop(), with: func(c *fakeCluster) {
			c.Round = respond(strings.Replace(lastRound, `"pressure":0.31,"floorsExceedSupply":false`, `"floorsExceedSupply":true`, 1))
		}},
		"no-rounds": {objects: shop(), with: func(c *fakeCluster) {
			c.Round = func(context.Context, *corev1.Pod) ([]byte, error) {
				return nil, errors.New("no round has been played yet")
			}
		}},
		"forbidden": {objects: shop(), with: func(c *fakeCluster) {
			c.may = func(string, string, string) bool { return false }
			c.refuse(nil, forbidden)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, c.objects...)
			if c.with != nil {
				c.with(cl)
			}
			stdout, _, err := cl.run(t, "doctor", "-q")
			if errors.Is(err, ErrFindings) != c.fails || (err != nil && !c.fails) {
				t.Errorf("error %v, want a failure: %v", err, c.fails)
			}
			golden(t, "doctor-"+name, stdout)
			var report doctor.Report
			asJSON, _, _ := cl.run(t, "doctor", "-o", "json")
			if err := json.Unmarshal([]byte(asJSON), &report); err != nil || len(report.Findings) != report.OK+report.Warnings+report.Failures {
				t.Errorf("-o json: %v, %+v", err, report)
			}
			for _, f := range report.Findings {
				if f.Text == "" || f.Name == "" || (f.Level != doctor.OK) != (f.Remedy != "") {
					t.Errorf("finding %+v: want a text, the name of its check, and a remedy unless it is OK", f)
				}
			}
		})
	}
}

// respond is an agent that always serves this round.
func respond(answer string) func(context.Context, *corev1.Pod) ([]byte, error) {
	return func(context.Context, *corev1.Pod) ([]byte, error) { return []byte(answer), nil }
}
