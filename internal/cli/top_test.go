package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestTopSource: top gets the market of each node, and the rounds of a node from its recording: all at first, then those
// that are new, and all again from an agent that has restarted.
func TestTopSource(t *testing.T) {
	c := newCluster(t, shop()...)
	short, long := recorderOf(70), recorderOf(150)
	var asked []uint64
	c.Rounds = func(ctx context.Context, agent *corev1.Pod, after uint64) ([]byte, error) {
		asked = append(asked, after)
		return serves(long)(ctx, agent, after)
	}
	src := topSource(&c.Access)
	cluster, err := src.Cluster(t.Context())
	if err != nil || len(cluster.Nodes) != 1 || cluster.Nodes[0].State != "scarce" || !cluster.At.Equal(noon) {
		t.Errorf("%+v, %v", cluster, err)
	}
	rounds, err := src.Node(t.Context(), "node-1", time.Time{})
	if err != nil || len(rounds) != 150 {
		t.Fatalf("%d rounds, %v", len(rounds), err)
	}
	last := rounds[149]
	if last.Price == 0 || len(last.Pods) != 2 || last.Pods[0].Name != "cart-7d9f" || last.Pods[0].Declared != 1000 || last.Pods[0].Throttled < 0.8 {
		t.Errorf("the last round: %+v", last)
	}
	rounds, err = src.Node(t.Context(), "node-1", last.At.Add(-10*time.Second))
	if err != nil || len(rounds) != 30 || asked[0] != 0 || asked[1] != 2 {
		t.Errorf("%d rounds after requests from minute %d, %v: want those of the minute of that time", len(rounds), asked, err)
	}
	c.Rounds = serves(short)
	if rounds, err = src.Node(t.Context(), "node-1", time.Time{}); err != nil || len(rounds) != 70 {
		t.Errorf("another agent: %d rounds, %v", len(rounds), err)
	}
	if _, err := src.Node(t.Context(), "node-9", time.Time{}); err == nil || !strings.Contains(err.Error(), "node node-9 has no agent") {
		t.Errorf("no agent: %v", err)
	}
}

// ending ends a context when it is written to.
type ending struct {
	io.Writer
	end context.CancelFunc
}

func (e *ending) Write(p []byte) (int, error) {
	n, err := e.Writer.Write(p)
	if strings.Contains(string(p), "Together they use") {
		e.end()
	}
	return n, err
}

// TestTopPlain: where the output is no terminal, top appends what nodes prints, without escape sequences, until its
// context ends.
func TestTopPlain(t *testing.T) {
	c := newCluster(t, shop()...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out strings.Builder
	f := newFlags()
	f.connected = &c.Access
	cmd := command(Streams{Out: &ending{&out, cancel}, Err: io.Discard}, "test", f)
	cmd.SetArgs([]string{"top"})
	must.Succeed(t, cmd.ExecuteContext(ctx))
	if text := out.String(); !strings.Contains(text, "node-1   scarce   0.961") || strings.Contains(text, "\x1b") || len(c.writes) > 0 {
		t.Errorf("%q, wrote %v", text, c.writes)
	}
}
