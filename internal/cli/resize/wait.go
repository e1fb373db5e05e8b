package resize

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
)

const (
	// PollInterval is how often a resize on its way is looked at.
	PollInterval = 100 * time.Millisecond
	// silentPolls is after how many looks a person wants to know what is waited for.
	silentPolls = 10
)

// waitUntilInForce waits until the kubelet has carried the move out, and says on the way what it waits for.
func waitUntilInForce(ctx context.Context, a *cluster.Access, s format.Streams, accepted *corev1.Pod, move actuator.Move, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	want := map[string]cpu.Milli{}
	for _, c := range move.Changes {
		want[c.Container] = c.To
	}
	start, text, shown, last := a.Now(), PodText(accepted), "", "no word from the kubelet"
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	for looks := 0; ; looks++ {
		var pod corev1.Pod
		err := a.Client.Get(ctx, client.ObjectKeyFromObject(accepted), &pod)
		switch {
		case apierrors.IsNotFound(err) || (err == nil && pod.UID != accepted.UID):
			return fmt.Errorf("%s went away while it was being resized", text)
		case err == nil:
			progress, said := podresize.Check(&pod, want, accepted.Generation)
			switch progress {
			case podresize.Done:
				_, err := fmt.Fprintf(s.Out, "%s: in force after %.1f s\n", text, a.Now().Sub(start).Seconds())
				return err
			case podresize.Infeasible:
				return fmt.Errorf("%s: its node cannot do this resize: %s; the new limit is in the pod's spec and not in force, %s", text, format.OneLine(said), takeBack(&pod, move))
			}
			if last = waiting(progress, said); looks >= silentPolls && last != shown {
				fmt.Fprintf(s.Err, "%s: %s\n", text, last)
				shown = last
			}
		case ctx.Err() == nil:
			return fmt.Errorf("%s: read it to follow the resize: %w", text, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return fmt.Errorf("%s: interrupted; the resize was asked for and may still come into force", text)
			}
			return fmt.Errorf("%s: not in force after %v: %s; it may still come into force, %s", text, timeout, last, takeBack(accepted, move))
		}
	}
}

// waiting says what a resize waits for.
func waiting(p podresize.Progress, said string) string {
	said = format.OneLine(said)
	switch p {
	case podresize.Deferred:
		return "the node cannot take it now and will try again: " + said
	case podresize.Errored:
		return "the node met an error and will try again: " + said
	}
	return "waiting: " + said
}

// takeBack is how to undo a move that did not come into force.
func takeBack(pod *corev1.Pod, move actuator.Move) string {
	c := move.Changes[0]
	return fmt.Sprintf("and is taken back with: kubectl mbcas resize %s -n %s -c %s --cpu-limit %v --force", pod.Name, pod.Namespace, c.Container, c.From)
}
