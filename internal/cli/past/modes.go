package past

import (
	"encoding/json"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/kube"
)

// modeSetAt is when the client that set the mode label of a namespace last wrote labels there: no earlier mode is known, and
// none before that time has to be the one of today. Zero: the namespace has no label, or nothing says when it was set.
func modeSetAt(ns *corev1.Namespace) (at time.Time) {
	for _, m := range ns.ManagedFields {
		var fields struct {
			Metadata struct {
				Labels map[string]any `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if m.Time == nil || m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, sets := fields.Metadata.Labels["f:"+kube.ModeLabel]; sets && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}

// beforeText is the mode of a row about the time before a mode was set.
func beforeText(at time.Time) string { return before + at.UTC().Format("15:04:05") }

const before = "before "

// What ends the names of pods of a Deployment, and of any other workload that has names generated: the API server draws from
// this alphabet.
var generatedEnds = regexp.MustCompile(`(-[bcdfghjklmnpqrstvwxz2456789]{6,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}$`)

// goneName is what is shown for the workload of a pod that no longer exists: its name without what was generated.
func goneName(pod string) string { return generatedEnds.ReplaceAllString(pod, "") + " (gone)" }
