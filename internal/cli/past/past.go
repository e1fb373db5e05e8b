// Package past reads recordings: from files, and from the agents of nodes.
package past

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/story"
)

// Extension is that of files with a recording.
const Extension = ".mbcas"

// Source is where a recording comes from: a file, or the agent of a node or of a pod's node.
type Source struct {
	File, Pod, Node string
	// Asked names that pod, as namespace/name, once it is read from its agent.
	Asked string
	// About is the pod, where one is named and the recording is read from its agent.
	About story.About
	// Connect connects to the cluster. A file needs none.
	Connect func() (*cluster.Access, error)
}

// IsFile says whether an argument is a file and no pod: no pod's name has a slash or ends so.
func IsFile(arg string) bool {
	return strings.HasSuffix(arg, Extension) || strings.Contains(arg, string(filepath.Separator)) && !strings.HasPrefix(arg, "pod")
}

// Read opens the recording. Of a damaged file what comes before the damage is read, and a warning is written.
func (s *Source) Read(ctx context.Context, streams format.Streams) (*record.Recording, error) {
	s.About = story.Everything
	if s.File != "" {
		return open(s.File, streams)
	}
	return s.Fetch(ctx)
}

// Fetch reads the recording from the node's agent.
func (s *Source) Fetch(ctx context.Context) (*record.Recording, error) {
	a, err := s.Connect()
	if err != nil {
		return nil, err
	}
	file, err := s.fetch(ctx, a, 0)
	if err != nil {
		return nil, err
	}
	rec, err := record.Open(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("recording of node %s: %w", s.Node, err)
	}
	return rec, nil
}

func open(path string, streams format.Streams) (*record.Recording, error) {
	rec, damage, err := record.OpenFile(path)
	if damage != nil {
		fmt.Fprintf(streams.Err, "%v; what comes before is read\n", damage)
	}
	return rec, err
}

// fetchTimeout bounds one request for a recording.
const fetchTimeout = time.Minute

// fetch reads the recording from the node's agent, or its part after a minute.
func (s *Source) fetch(ctx context.Context, a *cluster.Access, after uint64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if s.Node == "" {
		var pod corev1.Pod
		err := a.Client.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: s.Pod}, &pod)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("pod %s/%s does not exist: name another namespace with -n. %s", a.Namespace, s.Pod, Gone(s.Pod))
		}
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", a.Namespace, s.Pod, err)
		}
		s.Asked = pod.Namespace + "/" + pod.Name
		if s.Node = pod.Spec.NodeName; s.Node == "" {
			return nil, fmt.Errorf("pod %s/%s is on no node yet", a.Namespace, s.Pod)
		}
		s.About = story.Pod(pod.Namespace, pod.Name)
	}
	var pods corev1.PodList
	on := client.MatchingFields{"spec.nodeName": s.Node} // a large cluster has thousands of agents
	if err := a.Client.List(ctx, &pods, client.InNamespace(a.System), on); err != nil {
		return nil, fmt.Errorf("list the pods of node %s in namespace %s: %w", s.Node, a.System, err)
	}
	agent := cluster.AgentOn(pods.Items, s.Node)
	if agent == nil {
		return nil, fmt.Errorf("node %s has no agent; see \"kubectl mbcas doctor\"", s.Node)
	}
	file, err := a.Rounds(ctx, agent, after)
	if err != nil {
		return nil, fmt.Errorf("recording of node %s: %w", s.Node, err)
	}
	return file, nil
}

// Gone says where a pod that is gone can be found.
func Gone(pod string) string {
	return fmt.Sprintf("If it is gone, the recording of its node may have it: \"kubectl mbcas story --node NODE\", or "+
		"\"kubectl mbcas explain %s --at TIME\" with --node NODE or, of a file that \"record\" wrote, --recording FILE", pod)
}

// NoMode is the sentence where it is not known.
const NoMode = "Mode: not known. A recording does not have it."

// ModeNow says in a sentence which mode a namespace has now. A recording does not have the modes of a time.
func ModeNow(ctx context.Context, a *cluster.Access, namespace string) string {
	namespaces, err := cluster.ReadNamespaces(ctx, a.Client, namespace)
	if err != nil || len(namespaces) != 1 {
		return NoMode
	}
	settings, _ := cluster.ReadSettings(ctx, a) // without them the default mode is not known
	mode, _ := kube.ModeOf(namespaces[0].Labels, settings.Mode())
	if mode == "" {
		return NoMode
	}
	return fmt.Sprintf("Mode: %s now. A recording does not have that of a time.", mode)
}

// followInterval is how often a recording that goes on is fetched; an agent keeps minutes for longer.
const followInterval = 20 * time.Second

// Save writes the recording of an agent to a file, and goes on recording for the time of follow. Without a name the file is
// named by node and time.
func Save(ctx context.Context, a *cluster.Access, s format.Streams, from *Source, out string, follow time.Duration) error {
	end := a.Now().Add(follow)
	all := &record.Recording{}
	for {
		had := *all
		restarted, err := from.extend(ctx, a, all)
		if err == nil && restarted {
			err = errors.New("the agent has restarted")
		}
		if err != nil && len(had.Minutes) > 0 {
			fmt.Fprintf(s.Err, "the recording of node %s ends early: %v\n", from.Node, err)
			*all = had
			break
		}
		if err != nil {
			return err
		}
		left := end.Sub(a.Now())
		if left <= 0 {
			break
		}
		fmt.Fprintf(s.Err, "recording node %s: %v left\n", from.Node, left.Round(time.Second))
		select {
		case <-ctx.Done(): // the minutes so far are written
			end = a.Now()
		case <-time.After(min(left, followInterval)):
		}
	}
	if len(all.Minutes) == 0 {
		return fmt.Errorf("the agent of node %s has recorded nothing yet; try again in a few seconds", from.Node)
	}
	first, last := all.Minutes[0].From, all.Minutes[len(all.Minutes)-1].To
	if out == "" {
		out = from.Node + "-" + last.UTC().Format("20060102T150405") + Extension
	}
	size, err := Create(out, "-o", all.Write)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s: node %s from %s to %s, %.1f MiB\n", out, from.Node, first.UTC().Format("2006-01-02 15:04:05"),
		last.UTC().Format("15:04:05 UTC"), float64(size)/(1<<20))
	for _, p := range all.About.Pins {
		fmt.Fprintf(s.Out, "  kept for longer: %s, %s\n", p.At.UTC().Format("2006-01-02 15:04:05 UTC"), format.Printable(p.String()))
	}
	fmt.Fprintf(s.Out, "Next: kubectl mbcas story %s\n", out)
	return nil
}

// Create writes a new file, which the user alone may read. Where that fails, the file is removed.
func Create(path, flag string, write func(io.Writer) error) (size int64, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return 0, fmt.Errorf("%s exists; name another file with %s", path, flag)
	}
	if err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	if err := write(file); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ParseMoment reads a time. A time of day is the last one that is not after the end of the recording, and a duration counts back
// from that end.
func ParseMoment(text string, end time.Time) (time.Time, error) {
	if ago, err := time.ParseDuration(strings.TrimSpace(strings.TrimSuffix(text, "ago"))); err == nil && ago >= 0 {
		return end.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		day, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		at := end.UTC().Truncate(24 * time.Hour).Add(time.Duration(day.Hour())*time.Hour + time.Duration(day.Minute())*time.Minute +
			time.Duration(day.Second())*time.Second)
		if at.After(end) {
			at = at.Add(-24 * time.Hour)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("--at %q: want a time such as 12:03, 12:03:07 or 2026-11-21T12:03:07Z, in UTC, or 5m for five minutes before the end of the recording", text)
}
