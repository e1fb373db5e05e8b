package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/kube"
)

// rests says whether the pod is left as it is, because it has arrived where it was to go, or because it may
// not be resized now.
func (t *Task) rests(cfg Config, v View, why reasons.Reason, eligible, back, leaving bool) bool {
	p := t.Pod
	if back && kube.SameLimits(current(p), p.Declared) {
		t.settle()
		t.hold(v1alpha1.PhaseRestored, t.Why)
		t.Delete = leaving && p.PA != nil
		return true
	}
	t.sooner(silenceEnds(cfg, v))
	if r := held(cfg, v, p, why, eligible, back); r != "" {
		if r == v.Blocked {
			t.leaveStatus()
			return true
		}
		said := ""
		switch r {
		case p.Barred:
			said = p.Bar
		case reasons.ManagedByVPA:
			said = p.VPA
		case reasons.AutoscalerLookupFailed:
			said = p.Unsure
		}
		t.say(v1alpha1.PhaseNotApplied, r, said)
		return true
	}
	return false
}

// wayBack says whether the pod is to go back to its declared limits, and why.
func wayBack(cfg Config, v View, p Pod, leaving bool) (reasons.Reason, bool) {
	switch {
	case leaving:
		return reasons.Unmanaging, true
	case p.Mode == kube.ModeRestore:
		return reasons.Restoring, true
	case p.Mode == kube.ModeEnforce && v.unheard() >= cfg.RestoreAfter:
		return reasons.AgentUnresponsive, true
	}
	return "", false
}

// held says why the pod is not resized now, whatever is wanted; "" if it may be.
func held(cfg Config, v View, p Pod, why reasons.Reason, eligible, back bool) reasons.Reason {
	switch {
	case !eligible && !back:
		return why
	case p.Mode == kube.ModeRecommend && !back:
		return reasons.Recommending
	case v.Blocked != "":
		return v.Blocked
	case v.Node.Unknown:
		return reasons.NodeUnknown
	case v.Node.ShuttingDown:
		return reasons.NodeShuttingDown
	case !v.Node.Ready:
		return reasons.NodeNotReady
	case v.Node.Draining:
		return reasons.NodeDraining
	case v.Node.Pressure:
		return reasons.NodeUnderPressure
	case evicted(p.Pod, v.Node.Evicting):
		return reasons.NodeEvicting
	case v.Node.Silence >= cfg.FreezeAfter && !back:
		return reasons.AgentUnresponsive
	case p.Unsure != "" && !back:
		return reasons.AutoscalerLookupFailed
	case !back: // a restore is tried all the same
		return p.Barred
	}
	return ""
}

// silenceEnds is when the agent's silence will have a consequence that it does not have yet.
func silenceEnds(cfg Config, v View) time.Time {
	if s := v.Node.Silence; s < cfg.FreezeAfter {
		return v.Now.Add(cfg.FreezeAfter - s)
	}
	if s := v.unheard(); s < cfg.RestoreAfter {
		return v.Now.Add(cfg.RestoreAfter - s)
	}
	return time.Time{}
}

// unheard is for how long the agent could have renewed its Lease and did not. While its node was not Ready, and for agentStart after
// that, it could not: a node that comes back is not restored before its agent can tell that it is there.
func (v View) unheard() time.Duration {
	if !v.Node.Ready || v.Node.Since.IsZero() {
		return v.Node.Silence
	}
	return min(v.Node.Silence, v.Now.Sub(v.Node.Since)-agentStart)
}

// agentStart is how long an agent may take to renew its Lease once its node is Ready: its container has to be started first.
const agentStart = time.Minute

// noDecrease says why the pod must not be lowered, and when that may change by itself.
func noDecrease(cfg Config, v View, p Pod, again time.Time) (reasons.Reason, time.Time) {
	if !ready(p.Pod) {
		return reasons.PodNotReady, again
	}
	var why reasons.Reason
	for _, list := range [][]corev1.ContainerStatus{p.Pod.Status.ContainerStatuses, p.Pod.Status.InitContainerStatuses} {
		for _, c := range list {
			if c.State.Running == nil {
				continue
			}
			r, grace := reasons.PodStarting, cfg.StartGrace
			if c.RestartCount > 0 {
				r, grace = reasons.RecentlyRestarted, cfg.RestartGrace
			}
			if end := c.State.Running.StartedAt.Add(grace); v.Now.Before(end) {
				why = r
				if again.IsZero() || end.Before(again) {
					again = end
				}
			}
		}
	}
	return why, again
}

// leaves says whether a pod that is ineligible for this reason has left the market for good, so that
// it goes back to its declared limits. Other reasons may pass, and the pod is only held.
func leaves(why reasons.Reason) bool {
	switch why {
	case reasons.SystemNamespace, reasons.NamespaceOff, reasons.OptedOut, reasons.ManagedByVPA:
		return true
	}
	return false
}
