package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/cpu"
)

// reaches waits until the kernel enforces a limit of the pod's first container that suits.
func (s *suite) reaches(t *testing.T, most time.Duration, pod *corev1.Pod, what string, suits func(cpu.Milli) bool) {
	t.Helper()
	wait(t, most, pod.Labels["app"]+" "+what, func(ctx context.Context) (bool, string) {
		now := s.quota(t, pod)
		pa, err := s.allocation(ctx, pod)
		return suits(now), orError(err, "quota %v; %s", now, summary(pa))
	})
}

// warmUp is how many rounds an agent, or a new container, is only watched.
const warmUp = 10

// rounds waits until the agents that run now have decided n more rounds: the one measure of time in which
// they could have done something.
func (s *suite) rounds(t *testing.T, n int) {
	t.Helper()
	first := -1
	wait(t, time.Duration(n)*3*time.Second+90*time.Second, fmt.Sprintf("%d more rounds", n), func(ctx context.Context) (bool, string) {
		played, err := s.played(ctx)
		if err != nil {
			first = -1 // an agent that starts anew counts from 0
			return false, err.Error()
		}
		if first < 0 || played < first {
			first = played
		}
		return played >= first+n, fmt.Sprintf("%d of %d", played-first, n)
	})
}

// played is how many rounds the node's agent has played since it started.
func (s *suite) played(ctx context.Context) (int, error) {
	var list corev1.PodList
	if err := s.List(ctx, &list, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/component": "agent"}); err != nil {
		return 0, err
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil || p.Status.PodIP == "" || p.Spec.NodeName != s.node {
			continue
		}
		text, err := get(ctx, "http://"+p.Status.PodIP+":9090/metrics")
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(text) {
			var n float64
			if _, err := fmt.Sscanf(line, `mbcas_agent_rounds_total{result="completed"} %g`, &n); err == nil {
				return int(n), nil
			}
		}
	}
	return 0, fmt.Errorf("no agent has played a round")
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

// uninstall runs the documented command.
func uninstall(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "--no-print-directory", "uninstall")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make uninstall: %v\n%s", err, out)
	}
}
