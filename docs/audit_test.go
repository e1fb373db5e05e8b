package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/audit"
	"github.com/mbcas/mbcas/internal/testing/must"
)

var auditRow = regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (string|number|boolean|object) \\| .+ \\|$")

// TestAuditSchema: audit.md has a row for each field of an audit line, with the type that it has, and no others.
func TestAuditSchema(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil)).With("audit", true)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Spec: corev1.PodSpec{NodeName: "n"}}
	audit.Write(log, audit.Attempt{
		Pod: pod, Move: actuator.Move{Changes: []actuator.Change{{Container: "app", From: 500, To: 1500}}},
		Purpose: "allocate", Reason: "BoundByPrice", Generation: 3,
		Evidence: audit.Evidence{Price: "0.250", Budget: 500, Usage: 480, Demand: 2000, ThrottledPercent: 70},
		Result:   podresize.Result{Outcome: podresize.Accepted}, Latency: time.Second, Priority: "needed", Age: 2 * time.Second,
	})
	var line map[string]any
	must.Succeed(t, json.Unmarshal(out.Bytes(), &line))
	written := map[string]string{}
	for field, v := range line {
		switch v.(type) {
		case string:
			written[field] = "string"
		case float64:
			written[field] = "number"
		case bool:
			written[field] = "boolean"
		case map[string]any:
			written[field] = "object"
		default:
			written[field] = fmt.Sprintf("%T", v)
		}
	}
	listed := map[string]string{}
	for _, m := range auditRow.FindAllStringSubmatch(read(t, "audit.md"), -1) {
		listed[m[1]] = m[2]
	}
	if d := cmp.Diff(written, listed); d != "" {
		t.Errorf("fields of an audit line (-code +audit.md):\n%s", d)
	}
	for field, want := range map[string]any{
		"usage": "480m", "demand": "2000m", "throttledPercent": 70.0, "budget": 500.0, "price": "0.250", "outcome": "Accepted",
		"from": map[string]any{"app": "500m"}, "to": map[string]any{"app": "1500m"}, "latency": 1.0, "age": 2.0,
	} {
		if d := cmp.Diff(want, line[field]); d != "" {
			t.Errorf("field %s of %v (-want +got):\n%s", field, slices.Sorted(maps.Keys(line)), d)
		}
	}
}
