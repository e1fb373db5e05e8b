package cli

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// age writes a duration as kubectl does: 12s, 4m30s, 3h.
func age(d time.Duration) string { return duration.HumanDuration(max(0, d)) }

// plural counts things: "1 pod", "2 pods".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
