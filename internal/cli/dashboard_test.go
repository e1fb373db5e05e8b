package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/page"
	"github.com/mbcas/mbcas/internal/testing/apiserver"
	"github.com/mbcas/mbcas/internal/testing/must"
)

var pageAddress = regexp.MustCompile(`^(http://127\.0\.0\.1:[0-9]+)/#token=([0-9a-f]{32})(/.*)\n`)

// dashboard runs the command and returns how the page asks for figures, and the view that it begins with.
func dashboard(t *testing.T, a *cluster.Access, args ...string) (ask func(path string) string, view string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	f := newFlags()
	f.connected = a
	cmd := command(Streams{Out: write, Err: io.Discard}, "test", f)
	cmd.SetArgs(append([]string{"dashboard"}, args...))
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		write.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the command ended with %v", err)
		}
	})
	text := make([]byte, 1000)
	n, err := read.Read(text)
	m := pageAddress.FindStringSubmatch(string(text[:n]))
	if err != nil || m == nil {
		t.Fatalf("%v, printed %q", err, text[:n])
	}
	return func(path string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m[1]+path, nil)
		must.Succeed(t, err)
		r.Header.Set("X-Mbcas-Token", m[2])
		resp, err := http.DefaultClient.Do(r)
		must.Succeed(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		must.Succeed(t, err)
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}, m[3]
}

// TestDashboardOfTheCluster: the page's nodes are those of the Leases, in one request for all readers of ten seconds, and a
// node's figures come from its agent alone, which is asked for what is new only.
func TestDashboardOfTheCluster(t *testing.T) {
	c := newCluster(t, append(fleet(), shop()...)...)
	lists := 0
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, w client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if strings.Contains(fmt.Sprintf("%T", list), "LeaseList") {
				lists++
			}
			return w.List(ctx, list, opts...)
		},
	})
	var asked []string
	rec := recorderOf(150)
	c.Rounds = func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
		asked = append(asked, fmt.Sprint(agent.Spec.NodeName, " ", after))
		return serves(rec)(ctx, agent, after)
	}
	ask, view := dashboard(t, &c.Access, "--node", "node-1")
	if view != "/node/node-1" {
		t.Errorf("the page begins with %s", view)
	}
	var got struct {
		Live  bool
		Nodes []struct{ Node, State string }
	}
	for range 2 {
		_, body, _ := strings.Cut(ask("/api/cluster"), " ")
		must.Succeed(t, json.Unmarshal([]byte(body), &got))
	}
	states := map[string]string{}
	for _, n := range got.Nodes {
		states[n.Node] = n.State
	}
	if !got.Live || lists != 1 || states["node-full"] != "full" || states["node-scarce"] != "scarce" || states["node-silent"] != "silent" || states["node-new"] != "unknown" || states["node-free"] != "free" {
		t.Errorf("%d lists, live %v, %v", lists, got.Live, states)
	}
	if text := ask("/api/events?node=node-1"); !strings.Contains(text, "CPU becomes scarce") {
		t.Errorf("events: %.300s", text)
	}
	apiserver.Eventually(t, "the agent is asked again, which a second is too short for", func() (bool, any) {
		text := ask("/api/node?node=node-1")
		return len(asked) > 1 && strings.HasPrefix(text, "200 "), text
	})
	if later := slices.Compact(asked[1:]); asked[0] != "node-1 0" || fmt.Sprint(later) != "[node-1 2]" {
		t.Errorf("agents were asked %v", asked)
	}
	if text := ask("/api/node?node=node-9"); !strings.Contains(text, "node node-9 has no agent") || !strings.HasPrefix(text, "502 ") {
		t.Errorf("a node without an agent: %s", text)
	}
	if len(c.writes) > 0 {
		t.Errorf("it wrote %v", c.writes)
	}
}

// TestDashboardAfterAnAgentsRestart: an agent that has started again counts its minutes anew, and the page goes on.
func TestDashboardAfterAnAgentsRestart(t *testing.T) {
	c := newCluster(t, shop()...)
	c.Rounds = serves(recorderOf(200))
	src := liveSource{}
	src.Access = &c.Access
	if got, err := src.Recording(t.Context(), "node-1"); err != nil || len(got.Minutes) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	c.Rounds = serves(recorderOf(30))
	if got, err := src.Recording(t.Context(), "node-1"); err != nil || len(got.Minutes) != 1 {
		t.Errorf("after the restart %+v, %v", got, err)
	}
}

// TestDashboardOfAFile: a file needs no cluster, and what cannot be shown is named.
func TestDashboardOfAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "f.mbcas")
	ask, view := dashboard(t, nil, "f.mbcas")
	if text := ask("/api/cluster"); view != "/node/node-1" || !strings.Contains(text, `"live":false`) || !strings.Contains(text, `"state":"scarce"`) {
		t.Errorf("%s: %s", view, text)
	}
	offline := newCluster(t)
	for args, want := range map[string]string{
		"a.mbcas b.mbcas":        "takes one file, or --node",
		"f.mbcas --node node-1":  "takes one file, or --node",
		"missing.mbcas":          "no such file",
		"--node node-1 --reload": "unknown flag",
	} {
		offline.fails(t, "dashboard "+args, want)
	}
}

// TestDashboardExport: the page of a file, or of an agent, is written to a new file that the user alone may read. A program
// without the page leaves no file.
func TestDashboardExport(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newCluster(t, shop()...)
	c.records(t, "f.mbcas")
	offline := newCluster(t)
	for args, from := range map[string]*fakeCluster{"f.mbcas --export=file.html": offline, "--node=node-1 --export=node.html": c} {
		stdout, _, err := from.run(t, append([]string{"dashboard"}, strings.Fields(args)...)...)
		_, name, _ := strings.Cut(args, "--export=")
		info, missing := os.Stat(name)
		if !page.Built() {
			if err == nil || !strings.Contains(err.Error(), "run make page") || missing == nil {
				t.Errorf("%s without the page: %v, %v", args, err, missing)
			}
			continue
		}
		if err != nil || missing != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(stdout, name+": node node-1, ") {
			t.Errorf("%s: %v, %v, %v, %s", args, err, missing, info, stdout)
		}
	}
	for args, want := range map[string]string{
		"--export=x.html":          "--export needs a file with a recording, or --node",
		"f.mbcas --export=f.mbcas": "f.mbcas exists; name another file with --export",
		"f.mbcas --export=":        "no such file",
	} {
		offline.fails(t, "dashboard "+args, want)
	}
	if rec, err := readFile("f.mbcas"); err != nil || len(rec.Minutes) != 3 {
		t.Errorf("the recording is damaged: %v", err)
	}
}
