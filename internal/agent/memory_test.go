//go:build linux

package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

// BenchmarkMemory110Pods2Containers starts the shipped program on a full node where CPU is scarce,
// against a real API server, and reports the memory that it holds (rss-MiB) and held at most
// (peak-MiB) after each pod has its decision and rounds have gone on for a while; anon-MiB is the
// part of it that is not the program's own file.
//
//	KUBEBUILDER_ASSETS="$(bin/mbcas-cluster assets)" go test -run '^$' -bench Memory -benchtime 1x ./internal/agent
func BenchmarkMemory110Pods2Containers(b *testing.B) {
	const pods = 110
	w := newWorld(b)
	b.Cleanup(w.live())
	program := filepath.Join(b.TempDir(), "mbcas-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "../../cmd/mbcas-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for i := range pods {
		w.big(fmt.Sprint("pod-", i))
	}
	for b.Loop() {
		pid, url, stop := w.program(b, program)
		w.eventually("a decision for each pod", func() bool {
			return w.metric(url, `mbcas_node_pods{part="bidding"}`) == pods &&
				w.metric(url, `mbcas_agent_publishes_total{result="written"}`) >= pods
		})
		goal := w.completed(url) + 300
		w.eventually("300 rounds", func() bool { return w.completed(url) >= goal })
		for metric, field := range map[string]string{"rss-MiB": "VmRSS", "peak-MiB": "VmHWM", "anon-MiB": "RssAnon"} {
			b.ReportMetric(mebibytes(b, pid, field), metric)
		}
		stop()
	}
}

// live adds to the counters of the loads as time passes, until the returned function is called.
func (w *world) live() (stop func()) {
	return start(func(ctx context.Context) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			w.advance()
		}
	})
}

// big is a pod of two limited containers that want more than there is, with as much else in it as
// real pods have.
func (w *world) big(name string) {
	w.t.Helper()
	pod := apiserver.Pod(w.ns, name, apiserver.Container("app", "20m", "100m"), apiserver.Container("side", "10m", "100m"))
	pod.Annotations = map[string]string{"example.com/config": strings.Repeat("as long as real ones ", 400)}
	w.startPod(pod, 0.04, 0.2)
}

// program starts the agent as a process of its own.
func (w *world) program(b *testing.B, path string) (pid int, url string, stop func()) {
	b.Helper()
	file := apiserver.Start(b).Kubeconfig(b, "system:serviceaccount:mbcas-system:mbcas-agent", "system:serviceaccounts")
	cmd := exec.Command(path, "--kubeconfig", file, "--node-name", w.node, "--cgroup-root", w.tree.Config().Root,
		"--listen", "127.0.0.1:0", "--interval", "100ms")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	b.Cleanup(stop)
	listen := make(chan string, 1)
	go func() { // ends with the process
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var line struct{ Msg, Listen string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "agent starts" {
				listen <- line.Listen
			} else {
				fmt.Fprintln(b.Output(), lines.Text())
			}
		}
	}()
	select {
	case address := <-listen:
		return cmd.Process.Pid, "http://" + address, stop
	case <-time.After(time.Minute):
		b.Fatal("the agent did not start within a minute")
		return 0, "", nil
	}
}

// mebibytes is a field of a process's status.
func mebibytes(b *testing.B, pid int, field string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	b.Fatalf("no %s in the status of process %d", field, pid)
	return 0
}
