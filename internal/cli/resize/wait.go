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
	// PollInterval is the time between two reads of an object that a command waits for.
	PollInterval = 100 * time.Millisecond
	// silentPolls is the number of reads after which the command prints what it waits for.
	silentPolls = 10
)

// waitUntilInForce waits until the kubelet has carried out the resize, and prints what it waits
// for.
func waitUntilInForce(
	ctx context.Context, a *cluster.Access, s format.Streams, accepted *corev1.Pod, r Resize,
) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	want := map[string]cpu.Milli{}
	for _, c := range r.Move.Changes {
		want[c.Container] = c.To
	}
	start, text, printed, state := a.Now(), PodText(accepted), "", "no report from the kubelet"
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	for polls := 0; ; polls++ {
		var pod corev1.Pod
		err := a.Client.Get(ctx, client.ObjectKeyFromObject(accepted), &pod)
		switch {
		case apierrors.IsNotFound(err) || (err == nil && pod.UID != accepted.UID):
			return fmt.Errorf("%s was deleted during the resize", text)
		case err == nil:
			progress, message := podresize.Check(&pod, want, accepted.Generation)
			switch progress {
			case actuator.Done:
				_, err := fmt.Fprintf(s.Out, "%s: in force after %.1f s\n", text, a.Now().Sub(start).Seconds())
				return err
			case actuator.Infeasible:
				return fmt.Errorf("%s: its node cannot do this resize: %s; the new limit is in the pod's spec and "+
					"not in force; "+
					"to revert: %s", text, format.OneLine(message), r.revertCommand())
			}
			if state = waitingText(progress, message); polls >= silentPolls && state != printed {
				fmt.Fprintf(s.Err, "%s: %s\n", text, state)
				printed = state
			}
		case ctx.Err() == nil:
			return fmt.Errorf("%s: read it to follow the resize: %w", text, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return fmt.Errorf("%s: interrupted; the API server accepted the resize, and it may still come "+
					"into force", text)
			}
			return fmt.Errorf("%s: not in force after %v: %s; it may still come into force; to revert: %s",
				text, r.Timeout, state, r.revertCommand())
		}
	}
}

func waitingText(p actuator.Progress, message string) string {
	message = format.OneLine(message)
	switch p {
	case actuator.Deferred:
		return "the node has no room for it now and tries again: " + message
	case actuator.Errored:
		return "the kubelet met an error and tries again: " + message
	}
	return "waiting: " + message
}

// revertCommand restores the limits of a move that did not come into force.
func (r *Resize) revertCommand() string {
	c := r.Move.Changes[0]
	return fmt.Sprintf("kubectl mbcas resize %s -n %s -c %s --cpu-limit %v --force", r.Pod.Name, r.Pod.Namespace,
		c.Container, c.From)
}
