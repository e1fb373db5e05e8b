package e2e

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// A crowd is more pods than MbcasResizesFailing needs, and enough resizes for MbcasBacklog.
const (
	crowd     = "e2e-crowd"
	crowdSize = 24
)

// refusal is a policy by which the API server refuses each resize in the crowd.
const refusal = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: e2e-refusal}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [pods/resize]}
  validations:
    - {expression: "false", message: the test refuses each resize here}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: e2e-refusal}
spec:
  policyName: e2e-refusal
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + crowd + `}}}
`

// slowResizesAreTold: two dozen pods are to be lowered, and the controller may make one resize in ten seconds. When
// it may make more, a policy refuses those that are left.
func (m *monitoring) slowResizesAreTold(t *testing.T) {
	m.silent(t, "MbcasBacklog", "MbcasDecisionsOld", "MbcasResizesFailing")
	setBack := m.controllerFlags(t, "--node-resizes-per-second=0.1", "--node-resizes-burst=1")
	defer setBack()
	m.namespace(t, crowd, "enforce")
	d := m.deployment(crowd, "crowd", resources{"10m", "200m", "32Mi"}, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{kube.MaxCPUKey: "100m"}
		p.Spec.Containers[0].ReadinessProbe = nil
	})
	d.Spec.Replicas = new(int32(crowdSize))
	m.create(t, d)
	defer kubectl(t, "-n", crowd, "delete", "deployment", "crowd")
	m.told(t, 3*time.Minute, "MbcasBacklog", "resizes wait")
	m.told(t, 3*time.Minute, "MbcasDecisionsOld", "when the controller acts on it")

	watched.Refuses(crowd)
	undo := apply(t, refusal)
	defer undo()
	setBack()
	m.waitAlert(t, time.Minute, "MbcasBacklog", false, nil)
	m.told(t, 2*time.Minute, "MbcasResizesFailing", "of the managed pods failed")
}

// controllerFlags restarts the controller with these flags, too, and undo without them.
func (m *monitoring) controllerFlags(t *testing.T, flags ...string) (undo func()) {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := m.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "mbcas-controller"}, d); err != nil {
		t.Fatal(err)
	}
	before := d.Spec.Template.Spec.Containers[0].Args
	set := func(args []string) {
		text, err := json.Marshal([]any{
			map[string]any{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args},
		})
		if err != nil {
			t.Fatal(err)
		}
		kubectl(t, "-n", system, "patch", "deployment/mbcas-controller", "--type=json", "-p", string(text))
		rolledOut(t, "deployment/mbcas-controller")
	}
	set(slices.Concat(before, flags))
	return sync.OnceFunc(func() { set(before) })
}
