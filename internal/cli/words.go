package cli

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mbcas/mbcas/internal/kube"
)

// alone is how long MBCAS leaves a pod alone after somebody else changed its limits.
var alone = fmt.Sprintf("%d minutes", int(kube.ExternalChangeHoldOff.Minutes()))

// age writes a duration as kubectl does: 12s, 4m30s, 3h.
func age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// are counts things that are something: "1 pod is", "2 pods are".
func are(n int, thing string) string {
	if n == 1 {
		return plural(n, thing) + " is"
	}
	return plural(n, thing) + " are"
}

// plural counts things: "1 pod", "2 pods".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
