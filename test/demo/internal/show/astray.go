//go:build linux

package show

import (
	"context"
	"fmt"
	"time"
)

// KernelAstray waits until the kernel's limit of every pod is the declared one, and names those that still
// differ at the end of patience.
func (s Show) KernelAstray(ctx context.Context, patience time.Duration) ([]string, error) {
	deadline := time.Now().Add(patience)
	for {
		var astray []string
		for _, p := range s.Ledger.Pods() {
			files, err := s.Node.Find(p.ContainerID)
			if err != nil {
				return nil, fmt.Errorf("pod %s: %w", p.Name, err)
			}
			quota, err := files.Quota()
			if err != nil {
				return nil, fmt.Errorf("pod %s: %w", p.Name, err)
			}
			if quota != p.Workload.Limit {
				astray = append(astray, fmt.Sprintf("%s has limit %dm in the kernel, declared %dm", p.Name, quota, p.Workload.Limit))
			}
		}
		if len(astray) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			return astray, ctx.Err()
		}
		wait(ctx, 100*time.Millisecond)
	}
}
