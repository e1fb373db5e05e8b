//go:build linux

package kernel_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/testing/cgroups"
)

// block has reads below these pods wait until release is closed.
func (n *node) block(release <-chan struct{}, targets ...kernel.Target) {
	n.SetPread(func(fd int, to []byte, offset int64) (int, error) {
		path, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
		for _, t := range targets {
			if strings.Contains(strings.ReplaceAll(path, "_", "-"), t.Pod) {
				<-release
			}
		}
		if err != nil {
			return 0, err
		}
		return unix.Pread(fd, to, offset)
	})
}

// TestBlockedReadCostsItsPod: while reads of one pod do not end, the others are read, at once after the
// first time. Once they end, the pod is read again, and no file is left open.
func TestBlockedReadCostsItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, cgroups.Shape{}, func(n *node) { n.cfg.MemoryIOPressure = true })
		targets := pods(t, n.Tree, 4, 2)
		n.read(targets...)
		files := n.Descriptors()
		release := make(chan struct{})
		n.block(release, targets[1])
		check := func(when string, sample kernel.Sample, blocked bool) {
			t.Helper()
			for i, p := range sample.Pods {
				lost := blocked && i == 1
				for _, g := range p.Containers {
					if g.Found == lost || p.Own.Found == lost || p.Blocked != lost || (g.Stalls == nil) != lost {
						t.Errorf("%s: pod %d: blocked %v, %+v; want blocked %v", when, i, p.Blocked, g, lost)
					}
				}
			}
		}
		begin := time.Now()
		check("the first time", n.read(targets...), true)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the Read took %v, want less than a second", took)
		}
		begin = time.Now()
		check("later", n.read(targets...), true)
		if took := time.Since(begin); took != 0 {
			t.Errorf("the next Read took %v, want it not to wait", took)
		}
		close(release)
		synctest.Wait()
		check("when the read has ended", n.read(targets...), false)
		if got := n.Descriptors(); got != files {
			t.Errorf("%d files are open, want %d", got, files)
		}
	})
}

// TestWholeTreeBlocked: where the reads of many pods do not end, the Read waits: each holds a thread.
func TestWholeTreeBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, cgroups.Shape{}, nil)
		targets := pods(t, n.Tree, 20, 1)
		n.read(targets...)
		release, begin := make(chan struct{}), time.Now()
		n.block(release, targets...)
		time.AfterFunc(time.Minute, func() { close(release) })
		blocked := 0
		for _, p := range n.read(targets...).Pods {
			if p.Blocked {
				blocked++
			} else if !p.Own.Found {
				t.Errorf("pod %s is neither read nor blocked", p.Pod)
			}
		}
		if took := time.Since(begin); blocked != 16 || took != time.Minute {
			t.Errorf("%d of 20 pods are left alone, and the Read took %v; want 16, and that it waits for the rest", blocked, took)
		}
		synctest.Wait()
	})
}
