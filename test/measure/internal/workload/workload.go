package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/test/internal/cgroup"
	"github.com/mbcas/mbcas/test/internal/poll"
	"github.com/mbcas/mbcas/test/measure/internal/recorder"
	"github.com/mbcas/mbcas/test/measure/internal/script"
)

// Workload is the objects of a script on a cluster.
type Workload struct {
	Client   client.Client
	Script   *script.Script
	Recorder *recorder.Recorder
	// Node is where the pods run: this machine.
	Node string
}

// patience bounds each wait for the cluster.
const patience = 3 * time.Minute

// Open makes namespaces, with MBCAS off, PriorityClasses and the quota. Objects of an earlier
// measurement are taken over.
func (w Workload) Open(ctx context.Context) error {
	if err := w.create(ctx, fixtures(w.Script)); err != nil {
		return err
	}
	return w.SetMode(ctx, "off")
}

func (w Workload) create(ctx context.Context, all []client.Object) error {
	for _, o := range all {
		if err := w.Client.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %T %s: %w", o, client.ObjectKeyFromObject(o), err)
		}
	}
	return nil
}

func (w Workload) remove(ctx context.Context, all []client.Object) (err error) {
	for _, o := range all {
		gone := client.IgnoreNotFound(w.Client.Delete(ctx, o, client.PropagationPolicy("Background")))
		if gone != nil {
			err = errors.Join(err, fmt.Errorf("delete %T %s: %w", o, client.ObjectKeyFromObject(o), gone))
		}
	}
	return err
}

// SetMode sets the mode of MBCAS in the script's namespaces.
func (w Workload) SetMode(ctx context.Context, to string) error {
	for _, name := range w.Script.Namespaces {
		ns := &corev1.Namespace{}
		ns.Name = name
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, mode, to))
		if err := w.Client.Patch(ctx, ns, patch); err != nil {
			return fmt.Errorf("namespace %s: mode %s: %w", name, to, err)
		}
	}
	return nil
}

// Replace replaces all pods by new ones, and waits until they are Ready and their HPAs see them.
func (w Workload) Replace(ctx context.Context, limits bool) error {
	all := pods(w.Script, w.Node, limits)
	if err := w.remove(ctx, all); err != nil {
		return err
	}
	err := poll.Until(ctx, patience, func() string {
		var left []string
		for _, p := range w.Recorder.Pods("") {
			left = append(left, p.Name)
		}
		return join("pods are still there: ", left)
	})
	if err != nil {
		return err
	}
	if err := w.create(ctx, pods(w.Script, w.Node, limits)); err != nil {
		return err
	}
	return poll.Until(ctx, patience, func() string {
		return join("not Ready: ", append(w.unready(), w.blind(ctx)...))
	})
}

func join(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	const look = "; look at: kubectl describe pods -A -l " + recorder.PartOf + "=" + recorder.PartOfValue
	return what + strings.Join(names, ", ") + look
}

// unready are the workloads without a Ready pod.
func (w Workload) unready() (names []string) {
	for _, x := range w.Script.Workloads {
		p, err := w.Recorder.Pod(x.Name)
		if err != nil || !p.Ready || p.IP == "" || p.ContainerID == "" {
			names = append(names, x.Namespace+"/"+x.Name)
		}
	}
	return names
}

// blind are the HPAs that do not see what their pods use.
func (w Workload) blind(ctx context.Context) (names []string) {
	for _, x := range w.Script.Workloads {
		if x.HPA == nil {
			continue
		}
		hpa := scaler(x)
		err := w.Client.Get(ctx, client.ObjectKeyFromObject(hpa), hpa)
		if err != nil || !slices.ContainsFunc(hpa.Status.Conditions, active) {
			names = append(names, "HPA "+x.Namespace+"/"+x.Name)
		}
	}
	return names
}

func active(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
	return c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionTrue
}

// Close removes everything.
func (w Workload) Close(ctx context.Context) error {
	err := w.remove(ctx, append(pods(w.Script, w.Node, true), fixtures(w.Script)...))
	return errors.Join(err, poll.Until(ctx, patience, func() string {
		for _, name := range w.Script.Namespaces {
			if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("namespace %s is still there: %v", name, err)
			}
		}
		return ""
	}))
}

// NewPods creates a pod at each of its times after start, until length, and deletes it again. It
// returns what became of them.
func (w Workload) NewPods(ctx context.Context, start time.Time, length time.Duration) (all []recorder.NewPod) {
	n := w.Script.NewPods
	for at := n.First; at+n.Stay <= length && poll.Sleep(ctx, time.Until(start.Add(at))); at += n.Every {
		used, hard := w.Recorder.Quota()
		x := recorder.NewPod{Second: at.Seconds(), Free: int64(hard - used)}
		p := newPod(script.Workload{
			Name: NewPod, Namespace: n.Namespace, Kind: script.Serve, Request: n.Request, Limit: n.Limit,
		}, w.Node, len(all))
		created := time.Now()
		if err := w.Client.Create(ctx, p); err != nil {
			x.Refused = err.Error()
		} else {
			w.watchNewPod(ctx, created, start.Add(at+n.Stay), &x)
			if err := client.IgnoreNotFound(w.Client.Delete(ctx, p, client.GracePeriodSeconds(1))); err != nil {
				x.Refused = "it could not be deleted: " + err.Error()
			}
		}
		all = append(all, x)
	}
	return all
}

// Started is a pod that has just started.
type Started struct {
	UID     string
	Running time.Time // the API server shows it running
	Files   cgroup.Container
	Remove  func() error
}

// StartPod starts the pod of a reaction, of which threads spin from its first instruction on, and returns once the API
// server shows it running.
func (w Workload) StartPod(ctx context.Context, i, threads int) (Started, error) {
	x := w.Script.React.Pod
	x.Name, x.Kind, x.Threads = NewPod, script.Serve, threads
	p := newPod(x, w.Node, i)
	if err := w.Client.Create(ctx, p); err != nil {
		return Started{}, fmt.Errorf("create pod %s: %w", p.Name, err)
	}
	started := Started{UID: string(p.UID), Remove: func() error {
		err := client.IgnoreNotFound(w.Client.Delete(ctx, p, client.GracePeriodSeconds(1)))
		return errors.Join(err, poll.Until(ctx, patience, func() string {
			if len(w.Recorder.Pods(NewPod)) > 0 {
				return fmt.Sprintf("pod %s is still there", p.Name)
			}
			return ""
		}))
	}}
	for ends := time.Now().Add(patience); time.Now().Before(ends) && poll.Sleep(ctx, 5*time.Millisecond); {
		if now := w.Recorder.Pods(NewPod); len(now) > 0 && now[0].ContainerID != "" {
			var err error
			started.Running = time.Now()
			if started.Files, err = w.Recorder.Node.Find(now[0].ContainerID); err != nil {
				return started, errors.Join(err, started.Remove())
			}
			return started, nil
		}
	}
	late := fmt.Errorf("pod %s does not run after %v", p.Name, patience)
	return started, errors.Join(late, ctx.Err(), started.Remove())
}

// watchNewPod measures when the pod is Ready, and when the headroom that it took is free again.
func (w Workload) watchNewPod(ctx context.Context, created, until time.Time, x *recorder.NewPod) {
	counted := false // the quota's status shows the pod
	for time.Now().Before(until) && poll.Sleep(ctx, 100*time.Millisecond) {
		if now := w.Recorder.Pods(NewPod); x.Ready == nil && len(now) > 0 && now[0].Ready {
			x.Ready = new(time.Since(created).Seconds())
		}
		used, _ := w.Recorder.Quota()
		mark := w.Script.Quota.Mark()
		counted = counted || used > mark
		if x.FreeAgain == nil && counted && used <= mark {
			x.FreeAgain = new(time.Since(created).Seconds())
		}
	}
}
