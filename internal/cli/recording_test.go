package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/past"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/kernel"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/round"
)

// recorderOf has recorded rounds of a node with two pods of the shop, or with those named, which saturate and are throttled:
// CPU is scarce.
func recorderOf(seconds int, of ...string) *record.Recorder {
	if of == nil {
		of = []string{"cart-7d9f", "batch-x2"}
	}
	rec := record.NewRecorder(record.DefaultLimits)
	cfg := round.DefaultConfig()
	cfg.LongestGap = 4 * time.Second
	var pods []round.PodInput
	var names []record.Name
	for _, name := range of {
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

// records saves 150 s of node-1 to a file.
func (c *fakeCluster) records(t *testing.T, file string) {
	t.Helper()
	c.Rounds = serves(recorderOf(150))
	if _, _, err := c.run(t, "record", "--node", "node-1", "-o", file); err != nil {
		t.Fatal(err)
	}
}

// TestRecordAndReplay: a node's recording is saved to a file that the user alone may read, and the file is replayed and told
// without a cluster; the story of a pod, told by the agent of its node, has that pod and the node.
func TestRecordAndReplay(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.Rounds = serves(recorderOf(150))
	stdout, _, err := c.run(t, "record", "--node", "node-1")
	if err != nil {
		t.Fatal(err)
	}
	const name = "node-1-20261121T115959.mbcas"
	if !strings.Contains(stdout, name+": node node-1 from 2026-11-21 11:57:30 to 11:59:59 UTC") || !strings.Contains(stdout, "kubectl mbcas story "+name) {
		t.Errorf("record:\n%s", stdout)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if _, _, err := c.run(t, "record", "--node", "node-1"); err == nil || !strings.Contains(err.Error(), name+" exists; name another file with -o") {
		t.Errorf("a second time: %v", err)
	}
	offline := newCluster(t) // has neither pods nor agents
	stdout, _, err = offline.run(t, "replay", name)
	if err != nil || !strings.Contains(stdout, "150 rounds, 0 looks, 0 joins and") || !strings.Contains(stdout, "Every result is the one recorded.") {
		t.Errorf("replay: %v\n%s", err, stdout)
	}
	whole, _, err := offline.run(t, "story", name)
	if err != nil || !strings.Contains(whole, "CPU becomes scarce") || !strings.Contains(whole, "shop/cart-7d9f: The first decision is a limit of 670m (in force: 1000m)") {
		t.Errorf("story: %v\n%s", err, whole)
	}
	golden(t, "story", "$ kubectl mbcas story "+name+"\n"+whole)
	one, _, err := c.run(t, "story", "cart-7d9f", "-n", "shop")
	if err != nil || !strings.Contains(one, "shop/cart-7d9f: The first decision") || strings.Contains(one, "batch-x2") {
		t.Errorf("story of a pod: %v\n%s", err, one)
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
	young, empty := serves(recorderOf(40)), serves(record.NewRecorder(record.DefaultLimits))
	gone := func(context.Context, *corev1.Pod, uint64) ([]byte, error) { return nil, errors.New("no route") }
	for name, tc := range map[string]struct {
		first, then func(context.Context, *corev1.Pod, uint64) ([]byte, error)
		minutes     int
		told        string
	}{
		"goes-on":                 {first, full, 3, "recording node node-1: "},
		"restarted":               {first, other, 2, "ends early: the agent has restarted"},
		"restarted-in-its-minute": {young, other, 1, "ends early: the agent has restarted"},
		"restarted-a-moment-ago":  {first, empty, 2, "ends early: the agent has restarted"},
		"begins":                  {empty, full, 3, "recording node node-1: "},
		"gone":                    {first, gone, 2, "ends early: recording of node node-1: no route"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, shop()...)
			asked := 0
			c.Rounds = func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
				if asked++; asked == 1 {
					return tc.first(ctx, agent, after)
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
	}
}

// TestRecordingErrors: what is missing is named, and what can be read of a damaged file is read.
func TestRecordingErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "whole.mbcas")
	file, err := os.ReadFile("whole.mbcas")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"cut.mbcas": file[:len(file)-10], "none.mbcas": file[:20], "other.mbcas": []byte("PK")} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr, err := c.run(t, "replay", "cut.mbcas")
	if err != nil || !strings.Contains(stderr, "cut.mbcas: damaged at byte ") || !strings.Contains(stderr, "what comes before is read") || !strings.Contains(stdout, "the one recorded") {
		t.Errorf("cut: %v\n%s%s", err, stderr, stdout)
	}
	for args, want := range map[string]string{
		"story":                             "needs a file, a pod, or --node",
		"story a b":                         "takes one pod, got 2",
		"story cart-7d9f --node node-1":     "needs a file, a pod, or --node",
		"record whole.mbcas":                "is a file: record needs a pod or --node",
		"record --node node-9":              "node node-9 has no agent",
		"story missing -n shop":             "pod shop/missing does not exist: name another namespace with -n. If it is gone, the recording of its node may have it: \"kubectl mbcas story --node NODE\"",
		"replay none.mbcas":                 "none.mbcas: damaged at byte 5: the file ends here",
		"replay other.mbcas":                "this is no recording of MBCAS",
		"replay ./missing.mbcas":            "no such file",
		"replay " + filepath.Join("a", "b"): "no such file",
	} {
		if _, _, err := c.run(t, strings.Split(args, " ")...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	c.Rounds = func(context.Context, *corev1.Pod, uint64) ([]byte, error) {
		return nil, errors.New("answers 404: records nothing")
	}
	if _, _, err := c.run(t, "story", "--node", "node-1"); err == nil || !regexp.MustCompile("recording of node node-1: .*records nothing").MatchString(err.Error()) {
		t.Errorf("an agent without a recorder: %v", err)
	}
	c.Rounds = serves(record.NewRecorder(record.DefaultLimits))
	if _, _, err := c.run(t, "record", "--node", "node-1"); err == nil || !strings.Contains(err.Error(), "has recorded nothing yet") {
		t.Errorf("an agent that has just started: %v", err)
	}
}

// TestOtherResults: a replay that gives another result names the first, and fails.
func TestOtherResults(t *testing.T) {
	t.Chdir(t.TempDir())
	rec := record.NewRecorder(record.DefaultLimits)
	var state round.State
	rec.Begin(noon, round.DefaultConfig(), &state)
	rec.Round(round.Input{Now: noon}, nil, &round.Output{Watch: []int{7}})
	data, err := serves(rec)(t.Context(), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("f.mbcas", data, 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _, err := newCluster(t).run(t, "replay", "f.mbcas")
	if !errors.Is(err, replay.ErrOtherResults) || !strings.Contains(stdout, "1 results differ") || !strings.Contains(stdout, "The first: 2026-11-21 12:00:00.000, round (event 1 of minute 1)") {
		t.Errorf("%v\n%s", err, stdout)
	}
}

// TestExplainAt: the limit at a time, from the agent of the pod's node and from a file.
func TestExplainAt(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "f.mbcas")
	live, _, err := c.run(t, "explain", "cart-7d9f", "-n", "shop", "--at", "11:59")
	if err != nil || !strings.Contains(live, "Pod shop/cart-7d9f at 2026-11-21 11:59:00.0 UTC") || !strings.Contains(live, "Price: the pods of node node-1 demanded ") {
		t.Fatalf("%v\n%s", err, live)
	}
	golden(t, "explain-at", "$ kubectl mbcas explain cart-7d9f -n shop --at 11:59\n"+live)
	offline := newCluster(t)
	of := strings.Replace(live, "Mode: enforce now. A recording does not have that of a time.", past.NoMode, 1)
	if of == live {
		t.Errorf("no mode in\n%s", live)
	}
	for _, at := range []string{"11:59", "11:59:00", "2026-11-21T11:59:00Z", "2026-11-21 11:59:00", "59s", "59s ago", "0m59s ago"} {
		if file, _, err := offline.run(t, "explain", "cart-7d9f", "--recording", "f.mbcas", "--at", at); err != nil || file != of {
			t.Errorf("--at %s of a file: %v\n%s", at, err, file)
		}
	}
	gone := newCluster(t, agentOn("node-1"))
	gone.Rounds = serves(recorderOf(150))
	if stdout, _, err := gone.run(t, "explain", "cart-7d9f", "--node", "node-1", "--at", "11:59"); err != nil || stdout != of {
		t.Errorf("of a node, without the pod: %v\n%s", err, stdout)
	}
	for _, tc := range []struct{ args, want string }{
		{"explain cart-7d9f --recording f.mbcas", "--recording and --node need a time: give one with --at"},
		{"explain cart-7d9f --node node-1", "--recording and --node need a time: give one with --at"},
		{"explain cart-7d9f --recording f.mbcas --node node-1 --at 11:59", "exclude each other"},
		{"explain cart-7d9f --recording f.mbcas --at -5m", "want a time such as 12:03"},
		{"explain cart-7d9f --recording f.mbcas --at 5m", "2026-11-21 11:54:59 is not recorded"},
		{"explain cart-7d9f --recording f.mbcas --at noon", "want a time such as 12:03"},
		{"explain cart-7d9f --recording f.mbcas --at 11:57", "2026-11-21 11:57:00 is not recorded: the recording of node node-1 is from 2026-11-21 11:57:30 to 11:59:59 UTC"},
		{"explain cart-7d9f -n bazaar --recording f.mbcas --at 11:59", "the pod is not recorded"},
		{"explain cart-7d9f --recording missing --at 11:59", "no such file"},
	} {
		if _, _, err := offline.run(t, strings.Split(tc.args, " ")...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.args, err, tc.want)
		}
	}
}

// TestWhatIf: other settings give other limits, of a file and of the agent of a pod's node; what cannot be read is refused.
func TestWhatIf(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "f.mbcas")
	offline := newCluster(t)
	stdout, _, err := offline.run(t, "what-if", "f.mbcas", "--priority", "shop/cart-*=100000")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "what-if", "$ kubectl mbcas what-if f.mbcas --priority 'shop/cart-*=100000'\n"+stdout)
	if stdout, _, err := c.run(t, "what-if", "cart-7d9f", "-n", "shop", "--off", "-o", "json"); err != nil || !strings.Contains(stdout, `"scarce": 0`) {
		t.Errorf("off: %v\n%s", err, stdout)
	}
	share, _, errShare := offline.run(t, "what-if", "f.mbcas", "--reserve", "0.05")
	percent, _, errPercent := offline.run(t, "what-if", "f.mbcas", "--reserve", "5%")
	if errShare != nil || errPercent != nil || share != percent || !regexp.MustCompile(`\nreserve +10% +5%\n`).MatchString(share) {
		t.Errorf("%v, %v: a reserve of 5%% is not 0.05, or not beside that in force:\n%s\n%s", errShare, errPercent, share, percent)
	}
	ofPod, _, err := c.run(t, "what-if", "cart-7d9f", "-n", "shop", "--max-cpu", "shop/batch-x2=660m")
	if err != nil || !strings.Contains(ofPod, "Node node-1, that of shop/cart-7d9f, from ") || strings.Contains(ofPod, "have been the same") != !strings.Contains(ofPod, "\nshop/cart-7d9f ") {
		t.Errorf("of a pod: %v\n%s", err, ofPod)
	}
	if _, _, err := c.run(t, "story", "cart-0", "-n", "shop"); err == nil || !strings.Contains(err.Error(), "pod shop/cart-0 does not exist: name another namespace with -n. If it is gone, the recording of its node may have it: \"kubectl mbcas story --node NODE\"") {
		t.Errorf("a pod that is gone: %v", err)
	}
	if stdout, _, err := offline.run(t, "what-if", "f.mbcas", "--reserve=0.5", "--credits=2", "--request", "shop/cart-7d9f=100m", "--max-cpu=shop/batch*=700m", "--opt-out=shop/none"); err != nil || !strings.Contains(stdout, "shop/batch-x2") {
		t.Errorf("several: %v\n%s", err, stdout)
	}
	for args, want := range map[string]string{
		"--priority cart=5":             "want NAMESPACE/NAME=VALUE",
		"--priority shop/cart-7d9f=max": "want a whole number after the =",
		"--request shop/cart-7d9f=0":    "want an amount of CPU after the =",
		"--max-cpu shop/cart-7d9f=some": "want an amount of CPU after the =",
		"--reserve 1":                   "--reserve 1: want a share",
		"--reserve 5":                   "--reserve 5: want a share",
		"--reserve NaN":                 "--reserve NaN: want a share",
		"--reserve 100%":                "such as 0.05 or 5%",
		"--reserve little":              "such as 0.05 or 5%",
		"-o json":                       "nothing is changed, so nothing would be otherwise: give a change, such as --reserve 5%",
		"--opt-out shop/[":              "syntax error in pattern",
		"--opt-out shop/missing":        "no managed pod of the recording is one of those named",
	} {
		if _, _, err := offline.run(t, append([]string{"what-if", "f.mbcas"}, strings.SplitN(args, " ", 2)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
