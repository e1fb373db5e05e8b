package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/guard"
	"github.com/mbcas/mbcas/test/internal/poll"
)

// starting is the namespace of pods whose containers start while MBCAS raises them. Each killer has
// one of its own.
const starting = "e2e-starting"

// killers kill containers of pods of their own.
const killers = 5

// TestStarts: whatever happens to a container around a raise, it starts at the next attempt of the
// kubelet, and its pod has the CPU quota that the kubelet computes from the limits.
func TestStarts(t *testing.T) {
	s := start(t)
	s.namespace(t, starting, "recommend")
	for _, step := range []struct {
		name string
		run  func(*suite, *testing.T)
	}{
		{"RaisedDuringABackOff", (*suite).raisedDuringABackOff},
		{"BoostedBesideAnInitContainer", (*suite).boostedBesideAnInitContainer},
		{"BoostedBeforeASidecarHasStarted", (*suite).boostedBeforeASidecarHasStarted},
		{"BoostedBesideALateImage", (*suite).boostedBesideALateImage},
		{"BoostedBesideALateVolume", (*suite).boostedBesideALateVolume},
		{"RestoredBesideAMissingImage", (*suite).restoredBesideAMissingImage},
		{"KilledAfterAResize", (*suite).killedAfterAResize},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(s, t) }) {
			t.Fatalf("the test ends at %s; allocations:%s", step.name, s.allocations(t, starting))
		}
	}
	if said := uninstall(t); !strings.Contains(said, starting+"/half-") || !strings.Contains(said, "(side)") {
		t.Errorf("the uninstall names no pod whose container does not run:\n%s", said)
	}
}

// restarts has the guard expect that containers of a pod end.
func restarts(p *corev1.PodTemplateSpec) { p.Labels[guard.Restarted] = "true" }

// onlyPod is the pod of a deployment of these tests, as soon as there is one.
func (s *suite) onlyPod(t *testing.T, namespace, app string) (pod *corev1.Pod) {
	t.Helper()
	s.wait(t, time.Minute, "a pod of "+app, func() (bool, string) {
		list := s.list(t, namespace, map[string]string{"app": app})
		if len(list) == 1 {
			pod = &list[0]
		}
		return len(list) == 1, fmt.Sprintf("there are %d", len(list))
	})
	return pod
}

// raisedDuringABackOff: a container that ends again and again is raised while it runs, and starts
// after that.
func (s *suite) raisedDuringABackOff(t *testing.T) {
	s.deploy(t, starting, "burner", resources{"100m", "200m", "32Mi"}, func(p *corev1.PodTemplateSpec) {
		restarts(p)
		p.Spec.Containers[0].Args, p.Spec.Containers[0].ReadinessProbe = []string{"--once=1000000000"}, nil
	})
	pod := s.onlyPod(t, starting, "burner")
	// The kubelet does not always say CrashLoopBackOff: it looks at the pod again when the back-off ends.
	s.wait(t, 2*time.Minute, "the container is in its back-off", func() (bool, string) {
		c := only(t, s.pod(t, pod))
		return c.Status.RestartCount >= 2 && c.Status.State.Running == nil, fmt.Sprintf("%+v", c.Status)
	})
	s.setMode(t, starting, "enforce")
	var starts int32 // before it was raised
	s.wait(t, 12*time.Minute, "the container is raised and starts twice after that", func() (bool, string) {
		c := only(t, s.pod(t, pod))
		if c.FailedStart() {
			t.Fatalf("it cannot start: %+v", c.Status)
		}
		if c.Limit() == 200 {
			starts = c.Status.RestartCount
		}
		state := fmt.Sprintf("limit %v, %d starts", c.Limit(), c.Status.RestartCount)
		return c.Limit() > 200 && c.Status.RestartCount >= starts+2, state
	})
	kubectl(t, "-n", starting, "delete", "deployment", "burner")
}

// boostedBesideAnInitContainer: the boost is in force when the container runs, which starts at
// once.
func (s *suite) boostedBesideAnInitContainer(t *testing.T) {
	s.boosted(t, "migrating", func(p *corev1.PodTemplateSpec) {
		migrate := part("migrate", 0, resources{"20m", "200m", "32Mi"})
		migrate.Args = []string{"--once=2000000000"} // ten seconds
		p.Spec.InitContainers = []corev1.Container{migrate}
	}, nil)
}

// boostedBeforeASidecarHasStarted: neither the sidecar nor the container that waits for it is
// raised before it starts.
func (s *suite) boostedBeforeASidecarHasStarted(t *testing.T) {
	s.boosted(t, "proxied", func(p *corev1.PodTemplateSpec) {
		always := corev1.ContainerRestartPolicyAlways
		proxy := part("proxy", 8081, resources{"20m", "50m", "32Mi"})
		proxy.RestartPolicy = &always
		healthz := &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8081)}
		proxy.StartupProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: healthz}, InitialDelaySeconds: 10, PeriodSeconds: 1,
		}
		p.Spec.InitContainers = []corev1.Container{proxy}
	}, nil)
}

// boostedBesideALateImage: the image of the container comes later than the pod.
func (s *suite) boostedBesideALateImage(t *testing.T) {
	const name = "mbcas.io/late:dev"
	archive := filepath.Join(t.TempDir(), "late.tar")
	output(t, cluster(t.Context(), "image", "--name", name, "-o", archive, "bin/mbcas-load"))
	s.boosted(t, "pulled", func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = name }, func() {
		output(t, cluster(t.Context(), "load", archive))
	})
}

// boostedBesideALateVolume: a volume of the pod comes later.
func (s *suite) boostedBesideALateVolume(t *testing.T) {
	late := metav1.ObjectMeta{Namespace: starting, Name: "late"}
	s.boosted(t, "mounting", func(p *corev1.PodTemplateSpec) {
		source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: late.Name}}
		p.Spec.Volumes = []corev1.Volume{{Name: late.Name, VolumeSource: corev1.VolumeSource{ConfigMap: source}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: late.Name, MountPath: "/late"}}
	}, func() { s.create(t, &corev1.ConfigMap{ObjectMeta: late}) })
}

// boosted starts a pod with a start-up boost, provides what it waits for, and waits until the boost
// is in force at both levels. No limit is raised before its container runs.
func (s *suite) boosted(t *testing.T, app string, change func(*corev1.PodTemplateSpec), provide func()) {
	t.Helper()
	s.deploy(t, starting, app, resources{"100m", "200m", "32Mi"}, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{kube.StartupBoostKey: "3"}
		p.Spec.Containers[0].ReadinessProbe.FailureThreshold = 100
		p.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 20 // the boost lasts until it is Ready
		change(p)
	})
	pod := s.onlyPod(t, starting, app)
	if provide != nil {
		s.rounds(t, 10)
		if l := limit(s.pod(t, pod)); l != 200 {
			t.Errorf("its limit is %v, and it does not run", l)
		}
		provide()
	}
	s.wait(t, 2*time.Minute, app+" runs with its boost", func() (bool, string) {
		now := s.pod(t, pod)
		c := only(t, now)
		if c.FailedStart() {
			t.Fatalf("it cannot start: %+v", c.Status)
		}
		if c.Status == nil || c.Status.State.Running == nil {
			return false, fmt.Sprintf("%+v", now.Status)
		}
		q := quotaOf(t, now, c.Spec.Name)
		return q >= 600, fmt.Sprintf("quota %v", q)
	})
	if c := only(t, s.pod(t, pod)); c.Status.RestartCount != 0 {
		t.Errorf("it started %d times", c.Status.RestartCount+1)
	}
	s.quotasAreRight(t, starting)
	kubectl(t, "-n", starting, "delete", "deployment", app)
}

// restoredBesideAMissingImage: a container whose image is missing keeps nothing from the restore of
// the one beside it. An uninstall does not wait for it, and names the pod, as its limit was lowered
// before.
func (s *suite) restoredBesideAMissingImage(t *testing.T) {
	s.deploy(t, starting, "half", resources{"100m", "200m", "32Mi"}, func(p *corev1.PodTemplateSpec) {
		restarts(p)
		p.Spec.Containers = append(p.Spec.Containers, part("side", 8081, resources{"20m", "400m", "32Mi"}))
	})
	s.deploy(t, starting, "hog", resources{"100m", "2", "32Mi"})
	pods := s.pods(t, starting)
	pod := pods["half"]
	s.spin(t, pods["hog"], 2)
	s.spin(t, pod, 2)
	s.wait(t, 3*time.Minute, "its second container is lowered", func() (bool, string) {
		q := quotaOf(t, s.pod(t, pod), "side")
		return q < 400, fmt.Sprintf("quota %v", q)
	})
	image := `{"spec":{"containers":[{"name":"side","image":"mbcas.io/missing:dev"}]}}`
	must.Succeed(t, s.Patch(t.Context(), s.pod(t, pod), client.RawPatch(types.StrategicMergePatchType, []byte(image))))
	s.wait(t, time.Minute, "the image of its second container is missing", func() (bool, string) {
		c, _ := kube.Find(s.pod(t, pod), "side")
		return c.Status != nil && c.Status.State.Waiting != nil, fmt.Sprintf("%+v", c.Status)
	})
	kubectl(t, "-n", starting, "delete", "deployment", "hog")
	s.setMode(t, starting, "restore")
	s.has(t, time.Minute, pod, 200)
	s.spin(t, pod, 0)
	s.setMode(t, starting, "enforce")
}

// killedAfterAResize: containers are killed right after the API server has accepted a raise. Each
// fails to start once at most.
func (s *suite) killedAfterAResize(t *testing.T) {
	seed := seedOf(t)
	var killed, failed atomic.Int64
	podsEach, killsEach := 5, 4 // 100 kills
	if s.remote {
		podsEach, killsEach = 2, 3 // 30: it is slow
	}
	namespaces := make([]string, killers)
	for i := range namespaces {
		namespaces[i] = fmt.Sprint(starting, "-", i)
		s.namespace(t, namespaces[i], "enforce")
		for j := range podsEach {
			s.deploy(t, namespaces[i], fmt.Sprint("victim-", j), resources{"10m", "50m", "16Mi"}, restarts)
		}
	}
	t.Run("Kills", func(t *testing.T) { // ends when all have ended
		for i, namespace := range namespaces {
			pods := s.pods(t, namespace)
			t.Run(namespace, func(t *testing.T) {
				t.Parallel()
				random := rand.New(rand.NewPCG(seed, uint64(i)))
				for _, app := range slices.Sorted(maps.Keys(pods)) {
					for range killsEach {
						after := time.Duration(random.IntN(300)) * time.Millisecond
						failed.Add(int64(s.killAfterRaise(t, namespace, pods[app], after)))
						killed.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d containers killed, %d starts failed", killed.Load(), failed.Load())
	s.comesToRest(t, 5*time.Minute, func(t *testing.T) (pods []corev1.Pod) {
		for _, namespace := range namespaces {
			pods = append(pods, s.list(t, namespace, nil)...)
		}
		return pods
	})
}

// killAfterRaise kills the container of a pod so long after the API server has accepted a raise of
// it, and returns how many of its starts failed after that.
func (s *suite) killAfterRaise(t *testing.T, namespace string, pod *corev1.Pod, after time.Duration) (failed int) {
	s.setMode(t, namespace, "restore")
	s.wait(t, time.Minute, pod.Name+" is restored", func() (bool, string) {
		l := limit(s.pod(t, pod))
		return l == 50, "limit " + l.String()
	})
	s.setMode(t, namespace, "enforce")
	s.spin(t, pod, 1)
	until := time.Now().Add(s.deadline(2 * time.Minute))
	for limit(s.pod(t, pod)) == 50 {
		if time.Now().After(until) {
			t.Fatalf("%s is not raised", pod.Name)
		}
		poll.Sleep(t.Context(), 20*time.Millisecond)
	}
	poll.Sleep(t.Context(), after)
	before := only(t, s.pod(t, pod)).Status.RestartCount
	if s.remote {
		s.end(t, pod)
	} else {
		must.Succeed(t, kill(t, s.pod(t, pod), pod.Spec.Containers[0].Name))
	}
	var failures []time.Time
	s.wait(t, 12*time.Minute, pod.Name+" runs again", func() (bool, string) {
		c := only(t, s.pod(t, pod))
		if at := c.FailedAt(); !at.IsZero() && !slices.Contains(failures, at) {
			failures = append(failures, at)
		}
		again := c.Status.RestartCount > before && c.Status.State.Running != nil && c.Status.Ready
		return again, fmt.Sprintf("%+v", c.Status)
	})
	if len(failures) > 1 {
		t.Errorf("%s failed to start %d times after it was killed, at %v", pod.Name, len(failures), failures)
	}
	return len(failures)
}

// seedOf is a seed that is drawn, or the one of a run before.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("MBCAS_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must.Succeed(t, err)
	}
	t.Logf("MBCAS_SEED=%d", seed)
	return seed
}

// kill kills the processes of a container of this machine.
func kill(t *testing.T, pod *corev1.Pod, container string) error {
	c, _ := kube.Find(pod, container)
	files, err := machine(t).Find(c.RuntimeID())
	if err != nil {
		return err
	}
	return files.Kill()
}

// machine is this machine with its cgroups.
func machine(t *testing.T) cgroup.Node {
	t.Helper()
	node, err := cgroup.Detect("/sys/fs/cgroup")
	must.Succeed(t, err)
	return node
}

// only is the first container of a pod, with a status.
func only(t *testing.T, pod *corev1.Pod) kube.Container {
	t.Helper()
	c := kube.Containers(pod)[0]
	if c.Status == nil {
		c.Status = &corev1.ContainerStatus{}
	}
	return c
}

// quotasAreRight waits until nothing is wrong with the quotas of a namespace.
func (s *suite) quotasAreRight(t *testing.T, namespace string) {
	t.Helper()
	s.wait(t, time.Minute, "the quotas of the pods in "+namespace+" are those of their limits", func() (bool, string) {
		wrong, pods := []string(nil), s.list(t, namespace, nil)
		for _, pod := range pods {
			wrong = append(wrong, s.wrongQuota(t, &pod)...)
		}
		return len(pods) > 0 && len(wrong) == 0, strings.Join(wrong, "; ")
	})
}

// restsFor is how long the spec of a pod at rest has not changed, and its kubelet had nothing to do.
const restsFor = 30 * time.Second

// comesToRest waits until each of these pods was at rest, and nothing is wrong with the quota of one
// that is. They need not be at rest together: a container that ends again and again is raised each time it
// runs.
func (s *suite) comesToRest(t *testing.T, within time.Duration, pods func(*testing.T) []corev1.Pod) {
	t.Helper()
	type state struct {
		generation int64
		since      time.Time
		right      bool
	}
	seen := map[types.UID]*state{}
	s.wait(t, within, "the pods come to rest", func() (bool, string) {
		var open []string
		for _, p := range pods(t) {
			wrong, st := s.wrongQuota(t, &p), seen[p.UID]
			if st == nil {
				st = &state{}
				seen[p.UID] = st
			}
			if st.generation != p.Generation || !kube.Settled(&p) {
				st.generation, st.since = p.Generation, time.Now()
			}
			if time.Since(st.since) >= restsFor {
				st.right = len(wrong) == 0
			}
			if !st.right {
				open = append(append(open, p.Name), wrong...)
			}
		}
		return len(seen) > 0 && len(open) == 0, strings.Join(open, "; ")
	})
}

// wrongQuota says what is wrong with the quota of a pod's own cgroup, or what keeps a container
// from starting.
func (s *suite) wrongQuota(t *testing.T, pod *corev1.Pod) (wrong []string) {
	t.Helper()
	for _, c := range kube.Containers(pod) {
		if c.FailedStart() {
			wrong = append(wrong, fmt.Sprintf("%s: %s cannot start", pod.Name, c.Spec.Name))
		}
	}
	if q, err := s.podQuota(t, pod); err != nil || q != kube.PodQuota(pod) {
		wrong = append(wrong, fmt.Sprintf("%s has a quota of %v, want %v (%v)", pod.Name, q, kube.PodQuota(pod), err))
	}
	return wrong
}

// podQuota is the CPU quota of the pod's own cgroup. That of another machine is what the kubelet has
// read there (convertToAPIPodLevelResourcesStatus in pkg/kubelet of Kubernetes 1.36).
func (s *suite) podQuota(t *testing.T, pod *corev1.Pod) (cpu.Milli, error) {
	t.Helper()
	if s.remote {
		if pod.Status.Resources == nil {
			return 0, fmt.Errorf("the kubelet of %s does not report it", pod.Name)
		}
		return cpu.Milli(pod.Status.Resources.Limits.Cpu().MilliValue()), nil
	}
	files, err := machine(t).FindPod(string(pod.UID))
	if err != nil {
		return 0, err
	}
	q, err := files.Quota()
	return cpu.Milli(q), err
}
