package actuator_test

import (
	"fmt"
	"time"

	"github.com/mbcas/mbcas/actuator"
)

// A full node: the batch pod is lowered by one step first, and the web pod waits for it.
func ExamplePlan() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pods := []actuator.Pod{
		{
			UID: "web", Capped: true,
			Containers: []actuator.Container{{Name: "app", Limit: 500, Declared: 500, Floor: 200, Ceiling: 4000, Desired: 1500}},
		},
		{UID: "batch", Containers: []actuator.Container{{Name: "job", Limit: 3000, Declared: 3000, Floor: 500, Ceiling: 4000, Desired: 500}}},
	}
	for _, step := range actuator.Plan(actuator.DefaultConfig(), now, true, pods) {
		if step.Move != nil {
			fmt.Println("resize", step.Move, step.Reason)
		} else {
			fmt.Println("leave", pods[step.Pod].UID, step.Reason)
		}
	}
	// Output:
	// resize batch job 3000m->750m StepLimited
	// leave web WaitingForDecreases
}
