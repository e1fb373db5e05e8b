package doctor

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
	"github.com/mbcas/mbcas/internal/blastradius"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
)

// checkInstallationBounds shows what bounds the changes of the installation, where something does.
func checkInstallationBounds(f *findings, s subject) {
	var parts []string
	for _, bound := range []struct{ flag, none, text string }{
		{kube.MaxFactorFlag, "0", "limits up to %s times the declared ones"},
		{kube.MinFactorFlag, "0", "limits down to %s times the declared ones"},
		{kube.CanaryFlag, "100", "%s %% of a workload's replicas first"},
		{kube.NoChangeFlag, "", "no change in %s"},
	} {
		if value := s.Settings[bound.flag]; value != "" && value != bound.none {
			parts = append(parts, fmt.Sprintf(bound.text, value))
		}
	}
	if len(parts) > 0 {
		f.ok("blast radius", "%s", strings.Join(parts, "; "))
	}
}

// checkBlastRadius shows what bounds the changes in a namespace, what of it cannot be read, and which pods a canary
// stopped.
func checkBlastRadius(f *findings, s subject) {
	n := s.namespace
	var parts []string
	factors, err := kube.FactorsOf(n.meta)
	if err != nil {
		f.warn(n.name, format.OneLine(err.Error()), "Correct the value, or remove it.")
	}
	if factors.Max > 0 {
		parts = append(parts, fmt.Sprintf("limits up to %g times the declared ones", factors.Max))
	}
	if factors.Min > 0 {
		parts = append(parts, fmt.Sprintf("limits down to %g times the declared ones", factors.Min))
	}
	percent, err := kube.CanaryPercent(n.meta)
	if err != nil {
		f.warn(n.name, err.Error(), "Correct the value, or remove it.")
	}
	if percent < 100 {
		parts = append(parts, fmt.Sprintf("%d %% of a workload's replicas first", percent))
	}
	if text := kube.NoChangeWindows(n.meta); text != "" {
		parts = append(parts, "no change in "+text)
		if _, err := blastradius.ParseWindows(text); err != nil {
			f.fail(n.name, fmt.Sprintf("nothing is changed, as %s cannot be read: %v", kube.NoChangeKey, err),
				"Correct the annotation, or remove it.")
		}
	}
	if len(parts) > 0 {
		f.ok(n.name, "blast radius: %s", strings.Join(parts, "; "))
	}
	var stopped, invalid []*corev1.Pod
	for _, p := range n.candidates {
		if pa := s.Allocations[p.UID]; pa != nil && pa.Status.Reason == string(reasons.CanaryStopped) {
			stopped = append(stopped, p)
		}
		if _, err := kube.FactorsOf(p); err != nil {
			invalid = append(invalid, p)
		}
	}
	if len(stopped) > 0 {
		f.warn(n.name, fmt.Sprintf("%s of workloads whose canary did worse than the other replicas (%s): they keep their declared limits",
			format.Plural(len(stopped), "pod"), format.Few(podNames(stopped))),
			"Find out why the resized replicas were not Ready or restarted: kubectl mbcas explain POD")
	}
	if len(invalid) > 0 {
		f.warn(n.name, fmt.Sprintf("%s or %s cannot be read and counts as 1: %s", kube.MaxFactorKey, kube.MinFactorKey,
			format.Few(podNames(invalid))), "Correct the value on these pods, or remove it.")
	}
}
