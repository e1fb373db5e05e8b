// Package autoscaler models Kubernetes' autoscalers: the VerticalPodAutoscaler with in-place
// updates, and the HorizontalPodAutoscaler, both on what metrics-server reports.
package autoscaler

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// The constants of the Horizontal Pod Autoscaler: kube-controller-manager's flags and the defaults
// of autoscaling/v2, which has none for hpaMax.
const (
	hpaSync = 15 * time.Second // --horizontal-pod-autoscaler-sync-period
	// hpaTarget is the use to be reached, in percent of the request (the API's default).
	hpaTarget = 80
	// hpaTolerance is by how much of the target the use may be off before anything is done.
	hpaTolerance = 0.1
	// hpaStabilize is the window of the highest recommendation for a scale-in.
	hpaStabilize = 5 * time.Minute
	// hpaStarting is the age below which a pod counts as not ready until its metrics are all from
	// after its start.
	hpaStarting = 5 * time.Minute
	// In one period of 15 s replicas grow to the larger of so many times, and so many more.
	hpaUpFactor, hpaUpPods = 2, 4
	// Bounds of replicas; a workload that is declared with more may keep them.
	hpaMin, hpaMax = 1, 10
)

// HPA is Kubernetes' Horizontal Pod Autoscaler for every workload of managed pods. It leaves limits
// alone. Replicas for which the node has no room wait, as there is no other node. Rules for pods
// that are not ready later than at their start are left out: a simulated pod always is.
type HPA struct {
	metrics   metricsServer
	due       time.Duration
	workloads map[string]*hpaWorkload
}

// hpaWorkload is what is kept of a workload.
type hpaWorkload struct {
	wanted    int // replicas in its spec
	max       int
	proposals []hpaProposal // of the last hpaStabilize
}

type hpaProposal struct {
	at       time.Duration
	replicas int
}

// hpaObservation is a workload at one call.
type hpaObservation struct {
	key     string
	pod     int // ID of one of its pods
	request cpu.Milli
	running int
	// Of those that are ready: how many, what they use in cores, and what they request.
	ready          int
	use            float64
	requested      cpu.Milli
	requestMissing bool // one of them has no request
}

// NewHPA is what Kubernetes ships.
func NewHPA() *HPA { return &HPA{workloads: map[string]*hpaWorkload{}} }

// Decide implements sim.Policy.
func (h *HPA) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	h.metrics.read(r)
	var actions []sim.Action
	if r.Now >= h.due {
		h.due = r.Now + hpaSync
		actions = h.sync(r)
	}
	return actions, min(h.due, h.metrics.due)
}

func (h *HPA) sync(r *sim.Snapshot) []sim.Action {
	views := h.observe(r)
	free := r.Allocatable
	for _, p := range r.Pods {
		free -= p.Request
	}
	for _, v := range views {
		if w := h.workloads[v.key]; w != nil {
			free -= v.request * cpu.Milli(max(0, w.wanted-v.running))
		}
	}
	var actions []sim.Action
	for _, v := range views {
		w := h.workloads[v.key]
		if w == nil {
			w = &hpaWorkload{wanted: v.running, max: max(hpaMax, v.running), proposals: []hpaProposal{{r.Now, v.running}}}
			h.workloads[v.key] = w
		}
		w.wanted = max(w.wanted, v.running)
		want := limit(w, stable(r.Now, w, desired(w.wanted, v)))
		if more := want - w.wanted; more > 0 && v.request > 0 {
			more = min(more, int(max(0, free)/v.request))
			want = w.wanted + more
			free -= v.request * cpu.Milli(more)
		}
		w.wanted = want
		if want != v.running {
			actions = append(actions, sim.Action{Pod: v.pod, Replicas: want})
		}
	}
	return actions
}

// observe collects the workloads, in the order in which their first pods came.
func (h *HPA) observe(r *sim.Snapshot) []hpaObservation {
	var views []hpaObservation
	at := map[string]int{}
	for _, p := range r.Pods {
		if p.Spec.Workload == "" || !p.Spec.Managed() || p.Terminating {
			continue
		}
		key := p.Spec.Namespace + "/" + p.Spec.Workload
		i, ok := at[key]
		if !ok {
			i = len(views)
			at[key] = i
			views = append(views, hpaObservation{key: key, pod: p.ID, request: p.Request})
		}
		v := &views[i]
		v.running++
		v.requestMissing = v.requestMissing || p.Request == 0
		u := h.metrics.pods[p.ID]
		cores, ok := u.cores()
		if !ok || p.Age < hpaStarting && u.at-u.window < r.Now-p.Age {
			continue
		}
		v.ready++
		v.use += cores
		v.requested += p.Request
	}
	return views
}

// desired is how many replicas bring the use to the target, with wanted ones in the spec.
func desired(wanted int, v hpaObservation) int {
	if v.ready == 0 || v.requestMissing {
		return wanted
	}
	ratio := targetRatio(v.use, v.requested)
	unready := max(wanted, v.running) - v.ready
	if ratio <= 1 || unready == 0 {
		if math.Abs(ratio-1) <= hpaTolerance {
			return wanted
		}
		return int(math.Ceil(ratio * float64(v.ready)))
	}
	// To grow, those that are not ready are taken to use nothing.
	ratio = targetRatio(v.use, v.requested+v.request*cpu.Milli(unready))
	if ratio <= 1+hpaTolerance {
		return wanted
	}
	return max(wanted, int(math.Ceil(ratio*float64(v.ready+unready))))
}

// targetRatio is the use over the target. Kubernetes counts the use in whole percent of the requests.
func targetRatio(use float64, requested cpu.Milli) float64 {
	percent := int(100 * float64(cpu.FromCores(use)) / float64(requested))
	return float64(percent) / float64(hpaTarget)
}

// stable is the proposal, or for a scale-in the highest of the recent ones, up to the present
// number.
func stable(now time.Duration, w *hpaWorkload, desired int) int {
	w.proposals = append(w.proposals, hpaProposal{now, desired})
	for w.proposals[0].at < now-hpaStabilize {
		w.proposals = w.proposals[1:]
	}
	if desired >= w.wanted {
		return desired
	}
	most := desired
	for _, x := range w.proposals {
		most = max(most, x.replicas)
	}
	return min(most, w.wanted)
}

// limit applies the bounds and the scale-out rate to a proposal.
func limit(w *hpaWorkload, want int) int {
	want = min(want, max(w.wanted*hpaUpFactor, w.wanted+hpaUpPods))
	return max(hpaMin, min(want, w.max))
}
