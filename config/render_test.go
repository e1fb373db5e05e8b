// Package config_test holds the manifests to what the documentation says about them.
package config_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// overlays are all that a user may apply, and base with its component shards, with the replicas of the controller.
var overlays = map[string]int32{
	"base": 2, "testdata/shards": 3, "overlays/local": 1, "overlays/kind": 1, "overlays/minikube": 1,
}

// kubectl is the real program, of the version of the API server tests.
func kubectl(t *testing.T) string {
	t.Helper()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip("needs kubectl and an API server: KUBEBUILDER_ASSETS=\"$(bin/mbcas-cluster assets)\"")
	}
	return filepath.Join(assets, "kubectl")
}

// rendered are the objects of overlays, each rendered once.
var rendered = map[string][]client.Object{}

// render is a copy of what kubectl makes of an overlay, each object decoded strictly: an unknown or
// doubled field is an error.
func render(t *testing.T, overlay string) (objects []client.Object) {
	t.Helper()
	if rendered[overlay] == nil {
		rendered[overlay] = kustomized(t, overlay)
	}
	for _, o := range rendered[overlay] {
		objects = append(objects, o.DeepCopyObject().(client.Object))
	}
	return objects
}

func kustomized(t *testing.T, overlay string) (objects []client.Object) {
	t.Helper()
	cmd := exec.Command(kubectl(t), "kustomize", overlay)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v\n%s", overlay, err, stderr.String())
	}

	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		must.Succeed(t, add(types))
	}
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	for docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		must.Succeed(t, err)
		o, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", overlay, err, doc)
		}
		objects = append(objects, o.(client.Object))
	}
}

// one is the only object of its type and name.
func one[T client.Object](t *testing.T, objects []client.Object, name string) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if typed, ok := o.(T); ok && o.GetName() == name {
			found = append(found, typed)
		}
	}
	if len(found) != 1 {
		var zero T
		t.Fatalf("%d objects %T %q, want one", len(found), zero, name)
	}
	return found[0]
}

// TestOverlays: both pods of each overlay meet the Pod Security level restricted, but for the agent's one volume.
// Applying base changes no pod; the overlays for clusters of one's own enforce, and get their images by hand, so
// that they never ask a registry.
func TestOverlays(t *testing.T) {
	for overlay, replicas := range overlays {
		t.Run(overlay, func(t *testing.T) {
			objects, own := render(t, overlay), strings.HasPrefix(overlay, "overlays/")
			if n := one[*appsv1.Deployment](t, objects, "mbcas-controller").Spec.Replicas; n == nil || *n != replicas {
				t.Errorf("%v replicas of the controller, want %d", n, replicas)
			}
			agent := one[*appsv1.DaemonSet](t, objects, "mbcas-agent").Spec.Template.Spec
			controller := one[*appsv1.Deployment](t, objects, "mbcas-controller").Spec.Template.Spec
			job := one[*batchv1.CronJob](t, objects, "mbcas-restore").Spec
			restore := job.JobTemplate.Spec.Template.Spec
			if job.Suspend == nil || !*job.Suspend || restore.Containers[0].Image != controller.Containers[0].Image {
				t.Errorf("the template of the restore runs by itself, or has another image than the controller: %+v", job)
			}
			if restore.ServiceAccountName != controller.ServiceAccountName {
				t.Errorf("the restore has the account %s: the policies fence that of the controller", restore.ServiceAccountName)
			}
			for name, pod := range map[string]corev1.PodSpec{"agent": agent, "controller": controller, "restore": restore} {
				for _, fault := range weaknesses(pod) {
					if name == "restore" && fault == "has no probes" {
						continue
					}
					t.Errorf("%s: %s", name, fault)
				}
				if c := pod.Containers[0]; own && c.ImagePullPolicy != corev1.PullNever {
					t.Errorf("%s has pull policy %q, want Never", c.Image, c.ImagePullPolicy)
				}
			}
			if len(controller.Volumes) > 0 {
				t.Errorf("controller: has volumes %v, needs none", controller.Volumes)
			}
			if len(agent.Volumes) != 1 || agent.Volumes[0].HostPath == nil || agent.Volumes[0].HostPath.Path != "/sys/fs/cgroup" {
				t.Errorf("agent: volumes are %v, want the hostPath /sys/fs/cgroup alone", agent.Volumes)
			}
			for _, m := range agent.Containers[0].VolumeMounts {
				if !m.ReadOnly || m.RecursiveReadOnly == nil || m.MountPath != "/host/cgroup" {
					t.Errorf("agent: mount %v, want /host/cgroup, recursively read-only", m)
				}
			}
			want := "recommend"
			if own {
				want = "enforce"
			}
			// A namespace without a label is resized if the controller does it and its policy allows it.
			policy := one[*admissionv1.ValidatingAdmissionPolicy](t, objects, "mbcas-controller")
			if v := policy.Spec.Variables[0]; v.Name != "byDefault" || v.Expression != "'"+want+"'" {
				t.Errorf("the policy mbcas-controller takes the mode to be %s, want '%s'", v.Expression, want)
			}
			c := controller.Containers[0]
			i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "MBCAS_MODE" })
			if i < 0 || c.Env[i].Value != want || !slices.Contains(c.Args, "--mode=$(MBCAS_MODE)") {
				t.Errorf("mode is not %s: args %v, env %v", want, c.Args, c.Env)
			}
		})
	}
}

// weaknesses are what makes the pod more than restricted allows.
func weaknesses(pod corev1.PodSpec) (faults []string) {
	check := func(ok bool, fault string) {
		if !ok {
			faults = append(faults, fault)
		}
	}
	check(!pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "shares a namespace of the host")
	s := pod.SecurityContext
	check(s != nil && s.RunAsNonRoot != nil && *s.RunAsNonRoot, "may run as root")
	check(s != nil && s.RunAsUser != nil && *s.RunAsUser == 65532, "does not run as 65532")
	check(s != nil && s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault, "has no seccomp profile")
	check(len(pod.Containers) == 1 && len(pod.InitContainers) == 0, "has more than one container")
	for _, c := range pod.Containers {
		s := c.SecurityContext
		check(s != nil && s.Privileged == nil, "is privileged")
		check(s != nil && s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation, "may escalate privileges")
		check(s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem, "has a writable root filesystem")
		check(s != nil && s.Capabilities != nil && slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) &&
			len(s.Capabilities.Add) == 0, "has capabilities")
		check(!c.Resources.Limits.Memory().IsZero(), "has no memory limit")
		check(c.Resources.Limits.Cpu().IsZero(), "has a CPU limit: MBCAS must not be throttled")
		check(c.LivenessProbe != nil && c.ReadinessProbe != nil, "has no probes")
	}
	return faults
}

// TestRoles: the only write to pods is pods/resize, by the controller and by users with that role. No role reads
// secrets or permits impersonation.
func TestRoles(t *testing.T) {
	for _, o := range render(t, "testdata/plugin-users") {
		var rules []rbacv1.PolicyRule
		switch role := o.(type) {
		case *rbacv1.ClusterRole:
			rules = role.Rules
		case *rbacv1.Role:
			rules = role.Rules
		}
		for _, r := range rules {
			for _, fault := range excesses(o.GetName(), r) {
				t.Errorf("%s: %s: %v", o.GetName(), fault, r)
			}
		}
	}
}

// wildcards are the rules with one: it cannot be done without.
var wildcards = []string{
	"mbcas-controller: * */scale get",                  // which pods an autoscaler of any custom resource means
	"mbcas-controller: custom.metrics.k8s.io * get",    // resources are metrics: of an object, or of all pods, by name
	"mbcas-controller: external.metrics.k8s.io * list", // resources are metrics
}

func excesses(role string, r rbacv1.PolicyRule) (faults []string) {
	all := strings.Join(slices.Concat(r.APIGroups, r.Resources, r.Verbs), " ")
	if strings.Contains(all, "*") && !slices.Contains(wildcards, role+": "+all) {
		faults = append(faults, "a wildcard")
	}
	for _, word := range []string{"secrets", "impersonate", "escalate", "bind", "nodes/proxy", "pods/exec", "deletecollection"} {
		if strings.Contains(all, word) {
			faults = append(faults, word)
		}
	}
	writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains([]string{"get", "list", "watch"}, v) })
	for _, resource := range r.Resources {
		switch {
		case !writes:
		case resource == "pods/resize" && (role == "mbcas-controller" || role == "mbcas-plugin-resize") && slices.Equal(r.Verbs, []string{"patch"}):
		case resource == "pods/portforward" && role == "mbcas-plugin" && slices.Equal(r.Verbs, []string{"get", "create"}):
		case strings.HasPrefix(resource, "pods"), resource == "nodes", resource == "namespaces":
			faults = append(faults, "writes "+resource)
		case strings.HasPrefix(resource, "demandsignals") && role != "mbcas-edit" && !(role == "mbcas-controller" && resource == "demandsignals/status" && slices.Equal(r.Verbs, []string{"patch"})):
			faults = append(faults, "writes "+resource)
		case strings.HasPrefix(resource, "demandsignals/") && role == "mbcas-edit":
			faults = append(faults, "users write the status of DemandSignals")
		case resource == "podallocations" && role == "mbcas-agent" && !slices.Equal(r.Verbs, []string{"get", "patch"}):
			faults = append(faults, "an agent does more to PodAllocations than read and patch them")
		case resource == "nodeallocations" && role != "mbcas-controller":
			faults = append(faults, "writes "+resource)
		}
	}
	return faults
}
