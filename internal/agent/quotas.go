package agent

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kernel"
)

const (
	mismatchAfter = time.Minute      // a quota that the kubelet should set within seconds is logged
	podQuotaAfter = 15 * time.Second // and one of a pod's own cgroup reported, as the controller repairs it
	podQuotaNew   = 10 * time.Minute // within which a repair has helped, or never does
)

// quotaComparison compares quotas in the kernel with limits, round by round.
type quotaComparison struct {
	since      time.Time // from when on each round knew of all managed pods
	mismatched map[types.UID]mismatchedPod
}

// mismatchedPod is a pod whose quota in the kernel is not its limit.
type mismatchedPod struct {
	mismatch
	since    time.Time
	ownSince time.Time // of its own cgroup, at its generation; zero: that is right
	logged   bool
}

// mismatch is a quota that is not as it should be, in thousandths of a core.
type mismatch struct {
	container   string    // "": the pod's own cgroup
	quota, want cpu.Milli // as the kernel has it, and as the spec calls for it
	generation  int64     // of the pod
}

// quotaReport is what a round found about quotas.
type quotaReport struct {
	Mismatches int // pods whose quota in the kernel has not been their limit for long
	// Wrong are the quotas of pods' own cgroups that the controller is to repair. Unread: not all
	// that are new, as they do not fit, or some were not compared for long enough.
	Wrong  allocation.Quotas
	Unread bool
}

// compare compares the quotas of managed pods, and logs for each pod when a mismatch begins and
// when it ends. The pod's status does not show that a runtime answered a resize and did not carry
// it out, or that a container was resized while it did not run, and has its pod's old quota.
func (c *quotaComparison) compare(log *slog.Logger, s *snapshot, sample kernel.Sample, now time.Time) (r quotaReport) {
	if c.since.IsZero() || !s.Told || len(s.Unread) > 0 {
		c.since = now
	}
	before, wrong := c.mismatched, []types.UID(nil)
	c.mismatched = map[types.UID]mismatchedPod{}
	for i, ref := range s.Refs {
		u, was := before[ref.UID]
		own, known := ownMismatch(s, i, sample.Pods[i])
		m, differs := own, own.want > 0
		if !differs {
			m, differs = containerMismatch(s, i, sample.Pods[i])
		}
		switch {
		case !known && was && !u.ownSince.IsZero(): // a resize is under way, which may mend it
			m, u.ownSince = u.mismatch, now
		case !differs && u.logged:
			log.Info("the pod's quota in the kernel is its limit again", "namespace", ref.Namespace, "pod", ref.Name)
			continue
		case !differs:
			continue
		case own.want == 0:
			u.ownSince = time.Time{}
		case u.ownSince.IsZero() || u.generation != own.generation:
			u.ownSince = now
		}
		if u.mismatch = m; !was {
			u.since = now
		}
		if now.Sub(u.since) >= mismatchAfter {
			r.Mismatches++
			u.logged = u.logged || u.log(log, ref)
		}
		if !u.ownSince.IsZero() && now.Sub(u.ownSince) >= podQuotaAfter && s.Quotas[i].Ours {
			wrong = append(wrong, ref.UID)
		}
		c.mismatched[ref.UID] = u
	}
	// The newest come first: what stays wrong has been repaired in vain.
	slices.SortFunc(wrong, func(a, b types.UID) int {
		return cmp.Or(c.mismatched[b].ownSince.Compare(c.mismatched[a].ownSince), cmp.Compare(a, b))
	})
	r.Unread = now.Sub(c.since) < podQuotaAfter
	for i, uid := range wrong {
		if m := c.mismatched[uid]; i < allocation.MaxQuotas {
			r.Wrong.Add(uid, allocation.Quota{Generation: m.generation, CPU: m.quota})
		} else if now.Sub(m.ownSince) < podQuotaNew {
			r.Unread = true
		}
	}
	return r
}

func (m mismatch) log(log *slog.Logger, ref podRef) (logged bool) {
	log.Warn("the pod's quota in the kernel is not its limit; the kubelet's and the runtime's logs say why",
		"namespace", ref.Namespace, "pod", ref.Name, "container", m.container, "limit", m.want, "quota", m.quota)
	return true
}

// ownMismatch is the quota of a managed pod's own cgroup where it is not the one that the kubelet
// computes; else want is 0. known is false while the kubelet has something to do about the pod.
func ownMismatch(s *snapshot, i int, sample kernel.PodSample) (m mismatch, known bool) {
	want, q := s.Quotas[i], sample.Own.Quota
	if s.Pods[i].Unmanaged || !want.Settled {
		return mismatch{}, s.Pods[i].Unmanaged
	}
	// systemd rounds up to the next quantum: the same quota. A whole one less is too little on v1.
	if want.CPU <= 0 || q.Limit <= 0 || q.Period <= 0 || q.Distance(want.CPU) < cpu.Quantum {
		return mismatch{}, true
	}
	return mismatch{quota: cpu.FromUsage(q.Limit, q.Period), want: want.CPU, generation: want.Generation}, true
}

// containerMismatch is the first container of a managed pod whose quota is not its limit.
func containerMismatch(s *snapshot, i int, sample kernel.PodSample) (m mismatch, differs bool) {
	p := s.Pods[i]
	for j, c := range p.Containers {
		if p.Unmanaged || !c.Limited() || j >= len(sample.Containers) {
			continue
		}
		q := sample.Containers[j].Quota
		if q.Limit > 0 && q.Period > 0 && !q.Enforces(c.Limit) { // 0: there is none, or it was not read
			return mismatch{container: c.Name, quota: cpu.FromUsage(q.Limit, q.Period), want: c.Limit}, true
		}
	}
	return mismatch{}, false
}
