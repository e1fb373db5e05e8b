package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// recorderOf has recorded rounds of a node with two pods of the shop, of which one saturates and the other is throttled:
// CPU is scarce.
func recorderOf(seconds int) *record.Recorder {
	rec := record.NewRecorder(record.DefaultLimits)
	cfg := round.DefaultConfig()
	cfg.LongestGap = 4 * time.Second
	var pods []round.PodInput
	var names []record.Name
	for _, name := range []string{"cart-7d9f", "batch-x2"} {
		c := demand.Container{Name: "app", ID: name, Request: 500, Declared: 1000, Limit: 1000}.Within(0, 2000)
		pods = append(pods, round.PodInput{Pod: demand.Pod{UID: "uid-of-" + name, Budget: 500, Containers: []demand.Container{c}}})
		names = append(names, record.Name{Namespace: "shop", Name: name})
	}
	var state round.State
	for i := range seconds {
		at := time.Duration(i) * time.Second
		now := noon.Add(at - time.Duration(seconds)*time.Second)
		in := round.Input{Now: now, Node: round.Node{Capacity: 2000, Allocatable: 1500}, Pods: pods}
		in.Sample.Node = kernel.NodeSample{At: now, Usage: kernel.KnownTotal(2 * at), Kubepods: kernel.KnownTotal(2 * at), Idle: kernel.KnownTotal(0)}
		for _, p := range pods {
			in.Sample.Pods = append(in.Sample.Pods, kernel.PodSample{Pod: p.UID, Containers: []kernel.Group{{
				ID: p.Containers[0].ID, Found: true, At: now, Quota: kernel.Quota{Limit: 100 * time.Millisecond, Period: 100 * time.Millisecond},
				Stat: kernel.Stat{Usage: at, Periods: uint64(10 * i), Throttled: uint64(9 * i)},
			}}})
		}
		rec.Begin(now, cfg, &state)
		var out round.Output
		state, out = round.Run(cfg, state, in)
		rec.Round(in, names, &out)
		pods = slices.Clone(pods)         // the recorder keeps what the round was given
		for _, d := range out.Decisions { // a controller that does at once what is published
			if d.Publish {
				pods[d.Pod].Published = round.Published{At: now, Limits: map[string]cpu.Milli{"app": d.Limit}, Price: d.Price, Bound: d.Bound}
			}
		}
	}
	return rec
}

// serves answers like an agent with this recorder.
func serves(rec *record.Recorder) func(context.Context, *corev1.Pod, uint64) ([]byte, error) {
	return func(_ context.Context, _ *corev1.Pod, after uint64) ([]byte, error) {
		var b bytes.Buffer
		err := rec.WriteTo(&b, record.About{Node: "node-1", Version: "v0.1.0", Arch: "amd64"}, after)
		return b.Bytes(), err
	}
}

// recordsNothing has agents answer that they record nothing.
func recordsNothing(c *fakeCluster) {
	c.Rounds = func(context.Context, *corev1.Pod, uint64) ([]byte, error) { return nil, errors.New("records nothing") }
}

// records saves 150 s of node-1 to a file.
func (c *fakeCluster) records(t *testing.T, file string) {
	t.Helper()
	c.Rounds = serves(recorderOf(150))
	c.prints(t, "record --node node-1 -o "+file)
}

// TestRecordAndReplay: a node's recording is saved to a file that the user alone may read, and the file is replayed and told
// without a cluster; the story of a pod, told by the agent of its node, has that pod and the node.
func TestRecordAndReplay(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.Rounds = serves(recorderOf(150))
	const name = "node-1-20261121T115959.mbcas"
	c.prints(t, "record --node node-1", name+": node node-1 from 2026-11-21 11:57:30 to 11:59:59 UTC", "kubectl mbcas story "+name)
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	c.fails(t, "record --node node-1", name+" exists; name another file with -o")
	offline := newCluster(t) // has neither pods nor agents
	offline.prints(t, "replay "+name, "150 rounds, 0 looks, 0 joins and", "Every result is the one recorded.")
	offline.golden(t, "story", "story "+name)
	if one := c.prints(t, "story cart-7d9f -n shop", "shop/cart-7d9f: Its limit"); strings.Contains(one, "batch-x2") {
		t.Errorf("story of a pod:\n%s", one)
	}
}

func readFile(name string) (*record.Recording, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return record.Open(file)
}

// TestRecordFollows: a recording that goes on has each minute once. Where the agent restarts or cannot be read any more, what
// there was before is written.
func TestRecordFollows(t *testing.T) {
	t.Chdir(t.TempDir())
	full, other := serves(recorderOf(150)), serves(recorderOf(150))
	first := func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
		data, err := full(ctx, agent, after)
		if err != nil {
			return nil, err
		}
		rec, err := record.Open(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		rec.Minutes = rec.Minutes[:2]
		var b bytes.Buffer
		err = rec.Write(&b)
		return b.Bytes(), err
	}
	gone := func(context.Context, *corev1.Pod, uint64) ([]byte, error) { return nil, errors.New("no route") }
	for name, tc := range map[string]struct {
		then    func(context.Context, *corev1.Pod, uint64) ([]byte, error)
		minutes int
		told    string
	}{
		"goes-on":   {full, 3, "recording node node-1: "},
		"restarted": {other, 2, "ends early: the agent has restarted"},
		"gone":      {gone, 2, "ends early: recording of node node-1: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, shop()...)
				asked := 0
				c.Rounds = func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
					if asked++; asked == 1 {
						return first(ctx, agent, after)
					}
					return tc.then(ctx, agent, after)
				}
				now := noon
				c.Now = func() time.Time { now = now.Add(time.Second); return now }
				file := name + ".mbcas"
				_, stderr, err := c.run(t, "record", "cart-7d9f", "-n", "shop", "--follow", "1500ms", "-o", file)
				if err != nil || !strings.Contains(stderr, tc.told) {
					t.Fatalf("%v\n%s", err, stderr)
				}
				got, err := readFile(file)
				if err != nil || len(got.Minutes) != tc.minutes || asked < 2 {
					t.Errorf("%d minutes after %d requests, %v", len(got.Minutes), asked, err)
				}
			})
		})
	}
}

// TestRecordingErrors: what is missing is named, and what can be read of a damaged file is read.
func TestRecordingErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "whole.mbcas")
	file, err := os.ReadFile("whole.mbcas")
	must.Succeed(t, err)
	for name, data := range map[string][]byte{"cut.mbcas": file[:len(file)-10], "none.mbcas": file[:20], "other.mbcas": []byte("PK")} {
		must.Succeed(t, os.WriteFile(name, data, 0o600))
	}
	c.prints(t, "replay cut.mbcas", "cut.mbcas: damaged at byte ", "what comes before is read", "the one recorded")
	for args, want := range map[string]string{
		"story":                             "needs a file, a pod, or --node",
		"story a b":                         "takes one pod, got 2",
		"story cart-7d9f --node node-1":     "needs a file, a pod, or --node",
		"record whole.mbcas":                "is a file: record needs a pod or --node",
		"record --node node-9":              "node node-9 has no agent",
		"story missing -n shop":             "pod shop/missing: ",
		"replay none.mbcas":                 "none.mbcas: damaged at byte 5: the file ends here",
		"replay other.mbcas":                "this is no recording of MBCAS",
		"replay ./missing.mbcas":            "no such file",
		"replay " + filepath.Join("a", "b"): "no such file",
	} {
		c.fails(t, args, want)
	}
	recordsNothing(c)
	c.fails(t, "story --node node-1", "recording of node node-1: records nothing")
	c.Rounds = serves(record.NewRecorder(record.DefaultLimits)) // an agent that has just started
	c.fails(t, "record --node node-1", "has recorded nothing yet")
}

// TestOtherResults: a replay that gives another result names the first, and fails.
func TestOtherResults(t *testing.T) {
	t.Chdir(t.TempDir())
	rec := record.NewRecorder(record.DefaultLimits)
	var state round.State
	rec.Begin(noon, round.DefaultConfig(), &state)
	rec.Round(round.Input{Now: noon}, nil, &round.Output{Watch: []int{7}})
	data, err := serves(rec)(t.Context(), nil, 0)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile("f.mbcas", data, 0o600))
	stdout, _, err := newCluster(t).run(t, "replay", "f.mbcas")
	if !errors.Is(err, past.ErrOtherResults) || !strings.Contains(stdout, "1 results differ") || !strings.Contains(stdout, "The first: 2026-11-21 12:00:00.000, round (event 1 of minute 1)") {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// TestExplainAt: the limit at a time, from the agent of the pod's node and from a file.
func TestExplainAt(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "f.mbcas")
	live := c.prints(t, "explain cart-7d9f -n shop --at 11:59")
	golden(t, "explain-at", "$ kubectl mbcas explain cart-7d9f -n shop --at 11:59\n"+live)
	offline := newCluster(t)
	for _, at := range []string{"11:59", "11:59:00", "2026-11-21T11:59:00Z", "2026-11-21 11:59:00"} {
		if file, _, err := offline.run(t, "explain", "cart-7d9f", "--recording", "f.mbcas", "--at", at); err != nil || file != live {
			t.Errorf("--at %s of a file: %v\n%s", at, err, file)
		}
	}
	for args, want := range map[string]string{
		"--recording f.mbcas":                      "--recording needs a time: give one with --at",
		"--recording f.mbcas --at noon":            "want a time such as 12:03",
		"--recording f.mbcas --at 11:57":           "2026-11-21 11:57:00 is not recorded: the recording of node node-1 is from 2026-11-21 11:57:30 to 11:59:59 UTC",
		"-n bazaar --recording f.mbcas --at 11:59": "the pod is not recorded",
		"--recording missing --at 11:59":           "no such file",
	} {
		offline.fails(t, "explain cart-7d9f "+args, want)
	}
}

// TestWhatIf: other settings give other limits, of a file and of the agent of a pod's node; what cannot be read is refused.
func TestWhatIf(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "f.mbcas")
	offline := newCluster(t)
	stdout := offline.prints(t, "what-if f.mbcas --priority shop/cart-*=100000")
	golden(t, "what-if", "$ kubectl mbcas what-if f.mbcas --priority 'shop/cart-*=100000'\n"+stdout)
	c.prints(t, "what-if cart-7d9f -n shop --off -o json", `"scarce": 0`)
	offline.prints(t, "what-if f.mbcas --reserve=0.5 --request shop/cart-7d9f=100m --max-cpu=shop/batch*=700m --opt-out=shop/none", "shop/batch-x2")
	for args, want := range map[string]string{
		"--priority cart=5":             "want NAMESPACE/NAME=VALUE",
		"--priority shop/cart-7d9f=max": "want a whole number after the =",
		"--request shop/cart-7d9f=0":    "want an amount of CPU after the =",
		"--max-cpu shop/cart-7d9f=some": "want an amount of CPU after the =",
		"--reserve 1":                   "Reserve is 1",
		"--opt-out shop/[":              "syntax error in pattern",
		"--opt-out shop/missing":        "no managed pod of the recording is one of those named",
	} {
		offline.fails(t, "what-if f.mbcas "+args, want)
	}
}

// TestReport: the recordings of all agents are added up by workload, namespace, node or pod; an agent that cannot be read
// costs only itself, and is named.
func TestReport(t *testing.T) {
	c := newCluster(t, shop()...)
	c.Rounds = serves(recorderOf(150))
	c.golden(t, "report", "report -n shop")
	for by, want := range map[string]string{"workload": "shop/Pod/cart-7d9f", "namespace": "shop", "node": "node-1", "pod": "shop/cart-7d9f"} {
		stdout, _, err := c.run(t, "report", "-A", "--by", by, "-o", "csv")
		lines := strings.Split(stdout, "\n")
		if err != nil || !strings.HasPrefix(lines[0], "group,mode,throttled_seconds,") || !strings.Contains(stdout, "\n"+want+",enforce,") {
			t.Errorf("by %s: %v\n%s", by, err, stdout)
		}
	}
	if stdout := c.prints(t, "report -n bazaar"); strings.Contains(stdout, "cart") {
		t.Errorf("of another namespace:\n%s", stdout)
	}
	c.fails(t, "report --by colour", "want one of workload, namespace, node, pod")
	c.fails(t, "report --node node-9", "no agent runs on node node-9")
	second := agentOn("node-2")
	c = newCluster(t, append(shop(), second)...)
	c.Rounds = func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
		if agent.Spec.NodeName == "node-2" {
			return nil, errors.New("no route")
		}
		return serves(recorderOf(150))(ctx, agent, after)
	}
	if stdout, _, err := c.run(t, "report", "-A"); err != nil || !strings.Contains(stdout, "1 of 2 nodes, from") || !strings.Contains(stdout, "Not read: node node-2: no route.") {
		t.Errorf("%v\n%s", err, stdout)
	}
	c.Rounds = func(context.Context, *corev1.Pod, uint64) ([]byte, error) { return []byte("PK"), nil }
	if _, _, err := c.run(t, "report", "-A"); err == nil || !strings.Contains(err.Error(), "no recording could be read: node node-1: ") {
		t.Errorf("none can be read: %v", err)
	}
}

// agentOn is the agent's pod of a node.
func agentOn(node string) *corev1.Pod {
	p := apiserver.RunningPod(kube.SystemNamespace, cluster.AgentName+"-"+node, apiserver.Container("agent", "20m", ""))
	p.Spec.NodeName = node
	return p
}
