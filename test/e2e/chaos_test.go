package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/internal/traffic"
	"github.com/mbcas/mbcas/test/internal/watch"
)

// chaotic is the namespace of the pods of TestChaos.
const chaotic = "e2e-chaos"

const (
	chaosLasts = 10 * time.Minute
	// mostKills bounds the kills of one pod: the back-off of the kubelet grows with each.
	mostKills = 4
	// leastInFlight is how many containers are killed during a resize at least; with fewer the run
	// shows little.
	leastInFlight = 20
)

// chaos is a node with faults that one seed draws.
type chaos struct {
	faults
	random   *rand.Rand
	declared map[string]map[string]cpu.Milli // CPU limits by app and container

	mu       sync.Mutex
	kills    map[types.UID]int
	inFlight int // kills during a resize
}

// TestChaos kills containers, many of them during a resize, and kubelet, agents and controllers for
// ten minutes, while modes and loads change and pods are replaced. At rest, once the job is suspended,
// each container can start, and each pod has the CPU quota that the kubelet computes from the limits.
// MBCAS_SEED has the same faults drawn; which pod they meet, and when, depends on the machine.
func TestChaos(t *testing.T) {
	s := &chaos{
		faults:   faults{path: path{suite: start(t)}, state: filepath.Dir(os.Getenv("KUBECONFIG"))},
		declared: map[string]map[string]cpu.Milli{}, kills: map[types.UID]int{},
	}
	watched.APIServerFails() // a controller that is killed waits for no answer
	seed := seedOf(t)
	s.random = rand.New(rand.NewPCG(seed, 0))

	s.namespace(t, chaotic, "enforce")
	t.Cleanup(func() { repair(context.Background(), t) }) // before the namespace goes, which needs a kubelet
	s.openChaos(t)
	s.killDuringResizes(t, rand.New(rand.NewPCG(seed, 1)))
	s.play(t)
	repair(t.Context(), t)
	s.setMode(t, chaotic, "enforce")
	s.suspendJob(t)
	s.comesToRest(t, 15*time.Minute, s.managed)
	s.mu.Lock()
	t.Logf("%d containers killed during a resize, %d pods in all", s.inFlight, len(s.kills))
	if s.inFlight < leastInFlight {
		t.Errorf("%d containers were killed during a resize, want %d", s.inFlight, leastInFlight)
	}
	s.mu.Unlock()
	s.setMode(t, chaotic, "restore")
	s.areRestored(t)
	uninstall(t)
}

// openChaos starts deployments with and without a sidecar or a boost, one whose container ends
// again and again, and a job.
func (s *chaos) openChaos(t *testing.T) {
	small := resources{"10m", "60m", "16Mi"}
	ends := func(p *corev1.PodTemplateSpec) {
		p.Spec.Containers[0].Args, p.Spec.Containers[0].ReadinessProbe = []string{"--once=1000000000"}, nil
	}
	apps := map[string]func(*corev1.PodTemplateSpec){
		"web": func(*corev1.PodTemplateSpec) {}, "api": func(*corev1.PodTemplateSpec) {},
		"proxied": func(p *corev1.PodTemplateSpec) {
			proxy := part("proxy", 8081, small)
			proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = []corev1.Container{proxy}
		},
		"boosted": func(p *corev1.PodTemplateSpec) { p.Annotations = map[string]string{kube.StartupBoostKey: "3"} },
		"crasher": ends,
	}
	add := func(app string, p *corev1.PodTemplateSpec) {
		restarts(p)
		s.declared[app] = map[string]cpu.Milli{}
		for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
			s.declared[app][c.Name] = cpu.Milli(c.Resources.Limits.Cpu().MilliValue())
		}
	}
	for app, change := range apps {
		d := s.deployment(chaotic, app, small, change)
		d.Spec.Replicas = new(int32(2))
		add(app, &d.Spec.Template)
		s.create(t, d)
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: chaotic, Name: "job"},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1000)), BackoffLimit: new(int32(1000)),
			Template: s.template("job", small),
		},
	}
	ends(&job.Spec.Template)
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	add("job", &job.Spec.Template)
	s.create(t, job)
}

// killDuringResizes kills the container of about every other resize before the kubelet has carried
// it out, or while it does.
func (s *chaos) killDuringResizes(t *testing.T, random *rand.Rand) {
	seen := func(o client.Object) {
		pod := o.(*corev1.Pod)
		if pod.Namespace != chaotic || pod.DeletionTimestamp != nil {
			return
		}
		for _, c := range kube.Containers(pod) {
			if resizing(c) && random.IntN(2) == 0 {
				after := time.Duration(random.IntN(50)) * time.Millisecond
				time.AfterFunc(after, func() { s.killResizing(t, pod, c.Spec.Name) })
			}
		}
	}
	kinds := map[client.Object]labels.Selector{&corev1.Pod{}: nil}
	must.Succeed(t, watch.Objects(t.Context(), s.access, kinds, seen, func(client.Object) {}))
}

// resizing says whether the kubelet has yet to report the limit of a container that runs.
func resizing(c kube.Container) bool {
	return c.Runs() && c.InForce() > 0 && c.InForce() != c.Limit()
}

// killContainer kills a container of a pod that was not killed too often, and says whether it did.
func (s *chaos) killContainer(t *testing.T, pod *corev1.Pod, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kills[pod.UID] == mostKills || kill(t, pod, name) != nil { // or it has ended
		return false
	}
	s.kills[pod.UID]++
	return true
}

// killResizing kills a container, and counts that if the kubelet has not yet reported its resize.
func (s *chaos) killResizing(t *testing.T, pod *corev1.Pod, name string) {
	var now corev1.Pod
	if s.Get(t.Context(), client.ObjectKeyFromObject(pod), &now) != nil {
		return // it is gone
	}
	if c, _ := kube.Find(&now, name); resizing(c) && s.killContainer(t, &now, name) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight++
	}
}

// play has the faults happen.
func (s *chaos) play(t *testing.T) {
	began := time.Now()
	step := func(what string, args ...any) {
		t.Logf("%v %s", time.Since(began).Round(time.Second), fmt.Sprintf(what, args...))
	}
	for time.Since(began) < chaosLasts {
		poll.Sleep(t.Context(), time.Duration(500+s.random.IntN(2000))*time.Millisecond)
		pods := slices.DeleteFunc(s.list(t, chaotic, nil), func(p corev1.Pod) bool { return p.Status.PodIP == "" })
		if len(pods) == 0 {
			continue
		}
		pod := &pods[s.random.IntN(len(pods))]
		containers := kube.Containers(pod)
		c := containers[s.random.IntN(len(containers))]
		switch n := s.random.IntN(100); {
		case n < 50:
			s.tryLoad(t, pod, s.random.IntN(3))
		case n < 65:
			step("kill %s of %s", c.Spec.Name, pod.Name)
			s.killContainer(t, pod, c.Spec.Name)
		case n < 70:
			step("kill the kubelet")
			s.kill(t, "kubelet")
			poll.Sleep(t.Context(), time.Duration(s.random.IntN(10))*time.Second)
			repair(t.Context(), t)
		case n < 75:
			step("kill the agent")
			s.killSystem(t, "agent")
		case n < 80:
			step("kill a controller")
			s.killSystem(t, "controller")
		case n < 90:
			mode := []string{"enforce", "enforce", "recommend", "restore"}[s.random.IntN(4)]
			step("mode %s", mode)
			s.setMode(t, chaotic, mode)
		default:
			app := pod.Labels["app"]
			step("replace %s", app)
			s.replace(t, app)
		}
	}
}

// tryLoad sets the load of a pod, if it answers: it may be down.
func (s *chaos) tryLoad(t *testing.T, pod *corev1.Pod, threads int) {
	client := &http.Client{Timeout: time.Second}
	_ = traffic.Put(t.Context(), client, "http://"+pod.Status.PodIP+":8080/plan", map[string]any{"threads": threads})
}

// suspendJob ends the pods of the job: their load comes and goes, and limits of busy pods follow it.
func (s *chaos) suspendJob(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: chaotic, Name: "job"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))
	must.Succeed(t, s.Patch(t.Context(), job, patch))
}

// killSystem kills a container of MBCAS.
func (s *chaos) killSystem(t *testing.T, component string) {
	for _, p := range s.list(t, system, client.MatchingLabels{"app.kubernetes.io/component": component}) {
		c := kube.Containers(&p)[0]
		if p.Spec.NodeName != s.suite.node || !c.Runs() || s.killContainer(t, &p, c.Spec.Name) {
			continue
		}
		// It was killed so often that its back-off is long.
		must.Succeed(t, client.IgnoreNotFound(s.Delete(t.Context(), &p)))
	}
}

// replace replaces the pods of a deployment, or that of the job.
func (s *chaos) replace(t *testing.T, app string) {
	if app == "job" {
		err := s.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(chaotic), client.MatchingLabels{"app": app})
		must.Succeed(t, err)
		return
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: chaotic, Name: app}}
	const form = `{"spec":{"template":{"metadata":{"annotations":{"replaced":%q}}}}}`
	patch := fmt.Sprintf(form, time.Now().Format(time.RFC3339Nano))
	must.Succeed(t, s.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// managed are the pods of the namespace that have not ended, but for those of the job: there is
// always a new one.
func (s *chaos) managed(t *testing.T) []corev1.Pod {
	return slices.DeleteFunc(s.list(t, chaotic, nil), func(p corev1.Pod) bool {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		return ended || p.DeletionTimestamp != nil || p.Labels["app"] == "job"
	})
}

// areRestored waits until each pod has its declared limits at both levels, or is down and its
// status says so.
func (s *chaos) areRestored(t *testing.T) {
	s.wait(t, 10*time.Minute, "each pod is restored", func() (bool, string) {
		var wrong []string
		for _, p := range s.managed(t) {
			found := s.wrongQuota(t, &p)
			if got, want := kube.ByName(kube.Limits(&p)), s.declared[p.Labels["app"]]; !maps.Equal(got, want) {
				found = append(found, fmt.Sprintf("%s has the limits %v, want %v", p.Name, got, want))
			}
			if len(found) > 0 && !s.isDown(t, &p) {
				wrong = append(wrong, found...)
			}
		}
		return len(s.managed(t)) > 0 && len(wrong) == 0, strings.Join(wrong, "; ")
	})
}

// isDown says whether a container of a pod does not run, and the status of the pod says so.
func (s *chaos) isDown(t *testing.T, pod *corev1.Pod) bool {
	if !slices.ContainsFunc(kube.Containers(pod), func(c kube.Container) bool { return !c.Runs() }) {
		return false
	}
	pa, err := s.allocation(t, pod)
	said := []reasons.Reason{reasons.ContainerNotRunning, reasons.PodQuotaDiffers, reasons.StartFailed}
	return err == nil && slices.ContainsFunc(said, func(r reasons.Reason) bool {
		return strings.Contains(summary(pa), string(r))
	})
}
