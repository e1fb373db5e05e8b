// Package snapshot joins what was read of a cluster into one row per pod. It is pure: it holds no client and reads no clock.
package snapshot

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
)

// Snapshot is what the commands read of a cluster before they say anything.
type Snapshot struct {
	Pods        []corev1.Pod
	Allocations map[types.UID]*v1alpha1.PodAllocation
	// Modes holds the mode of each namespace that could be read.
	Modes map[string]kube.Mode
	// DefaultMode is the installation's mode for namespaces without a label; "" where it is not known.
	DefaultMode kube.Mode
	// System is the namespace that MBCAS runs in.
	System string
	// Around knows which pods are left to a VerticalPodAutoscaler.
	Objects ObjectsByNamespace
	// Live holds the figures of each node's last round, Markets the nodes themselves, as far as agents answered.
	Live    map[types.UID]*Figures
	Markets []Market
	// Stopped says why MBCAS resizes no pod of the cluster at present; "" if it does.
	Stopped string
	// Notes say what could not be read and is therefore guessed or missing.
	Notes []string
}

// Mode is the mode of a namespace; "" where it is not known.
func (w *Snapshot) Mode(namespace string) kube.Mode {
	if m, ok := w.Modes[namespace]; ok {
		return m
	}
	return w.DefaultMode
}

func (w *Snapshot) Note(format string, args ...any) {
	w.Notes = append(w.Notes, fmt.Sprintf(format, args...))
}
