package cli

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// parallel calls do n times, in order, on all CPUs, until the context ends.
func parallel(ctx context.Context, n int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				do(i)
			}
		})
	}
	workers.Wait()
}
