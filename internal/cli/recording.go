package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/record"
	"github.com/mbcas/mbcas/internal/replay"
	"github.com/mbcas/mbcas/internal/story"
)

// extension is that of files with a recording.
const extension = ".mbcas"

// source is where a recording comes from: a file, or the agent of a node or of a pod's node.
type source struct {
	arg  string // a file or a pod; empty: node
	node string
	// about is the pod, where one is named and the recording is not a file.
	about story.About
}

func (s *source) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.node, "node", "", "the recording of this node")
}

// args takes a file or a pod, or neither with --node.
func (s *source) args(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && isFile(args[0]) && s.node == "" {
		s.arg = args[0]
		return nil
	}
	if err := podArgs(0)(cmd, args); err != nil {
		return err
	}
	if (len(args) == 0) == (s.node == "") {
		return UsageError{Err: fmt.Errorf("%q needs a file, a pod, or --node", cmd.CommandPath())}
	}
	if len(args) == 1 {
		s.arg = args[0]
	}
	return nil
}

// isFile says whether an argument is a file and no pod: no pod's name has a slash or ends so.
func isFile(arg string) bool {
	return strings.HasSuffix(arg, extension) || strings.Contains(arg, string(filepath.Separator)) && !strings.HasPrefix(arg, "pod")
}

// read opens the recording. Of a damaged file what comes before the damage is read, and a warning is written.
func (s *source) read(ctx context.Context, f *flags, streams Streams) (*record.Recording, error) {
	s.about = story.Everything
	if s.arg != "" && isFile(s.arg) {
		return openRecording(s.arg, streams)
	}
	a, err := f.connect()
	if err != nil {
		return nil, err
	}
	file, err := s.fetch(ctx, a, 0)
	if err != nil {
		return nil, err
	}
	rec, err := record.Open(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("recording of node %s: %w", s.node, err)
	}
	return rec, nil
}

func openRecording(path string, streams Streams) (*record.Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rec, err := record.Open(file)
	var damage *record.Damage
	if errors.As(err, &damage) && rec != nil && len(rec.Minutes) > 0 {
		fmt.Fprintf(streams.Err, "%s: %v; what comes before is read\n", path, damage)
		return rec, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rec, nil
}

// fetchTimeout bounds one request for a recording.
const fetchTimeout = time.Minute

// fetch reads the recording from the node's agent, or its part after a minute.
func (s *source) fetch(ctx context.Context, a *cluster.Access, after uint64) ([]byte, error) {
	if s.node == "" {
		var pod corev1.Pod
		if err := a.Client.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: s.arg}, &pod); err != nil {
			return nil, fmt.Errorf("pod %s/%s: %w", a.Namespace, s.arg, err)
		}
		if s.node = pod.Spec.NodeName; s.node == "" {
			return nil, fmt.Errorf("pod %s/%s is on no node yet", a.Namespace, s.arg)
		}
		s.about = story.Pod(pod.Namespace, pod.Name)
	}
	var pods corev1.PodList
	if err := a.Client.List(ctx, &pods, client.InNamespace(a.System)); err != nil {
		return nil, fmt.Errorf("list the agents in namespace %s: %w", a.System, err)
	}
	agent := cluster.AgentOn(pods.Items, s.node)
	if agent == nil {
		return nil, fmt.Errorf("node %s has no agent; see \"kubectl mbcas doctor\"", s.node)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	file, err := a.Rounds(ctx, agent, after)
	if err != nil {
		return nil, fmt.Errorf("recording of node %s: %w", s.node, err)
	}
	return file, nil
}

func recordCommand(s Streams, f *flags) *cobra.Command {
	var from source
	var out string
	var follow time.Duration
	cmd := &cobra.Command{
		Use:   "record [POD]",
		Short: "Save the recording of a node: what its rounds were given",
		Long: "Save what the agent of a node has recorded: the counters and settings of the rounds of the last half hour,\n" +
			"and of the minutes around incidents. The file has the names of namespaces, pods and containers, and CPU figures;\n" +
			"no labels, images or environment. \"story\", \"replay\" and \"explain --at\" read it, without a cluster.",
		Example: "  kubectl mbcas record --node node-1\n  kubectl mbcas record cart-7d9f -n shop --follow 10m -o cart" + extension,
		Args:    from.args, ValidArgsFunction: f.completePods,
		RunE: f.run(func(ctx context.Context, a *cluster.Access, _ []string) error {
			if from.arg != "" && isFile(from.arg) {
				return UsageError{Err: fmt.Errorf("%s is a file: record needs a pod or --node", from.arg)}
			}
			return saveRecording(ctx, a, s, &from, out, follow)
		}),
	}
	from.bind(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "`file` to write; by default NODE-TIME"+extension)
	cmd.Flags().DurationVar(&follow, "follow", 0, "go on recording for this long, such as 10m")
	return cmd
}

// followInterval is how often a recording that goes on is fetched; an agent keeps minutes for longer.
const followInterval = 20 * time.Second

func saveRecording(ctx context.Context, a *cluster.Access, s Streams, from *source, out string, follow time.Duration) error {
	end := a.Now().Add(follow)
	all := &record.Recording{}
	for {
		after := uint64(0)
		if n := len(all.Minutes); n > 0 {
			after = all.Minutes[n-1].Seq - 1 // the last was not over
		}
		file, err := from.fetch(ctx, a, after)
		if err != nil {
			return err
		}
		rec, err := record.Open(bytes.NewReader(file))
		if err != nil {
			return fmt.Errorf("recording of node %s: %w", from.node, err)
		}
		all.Add(rec)
		left := end.Sub(a.Now())
		if left <= 0 {
			break
		}
		fmt.Fprintf(s.Err, "recording node %s: %v left\n", from.node, left.Round(time.Second))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(left, followInterval)):
		}
	}
	if len(all.Minutes) == 0 {
		return fmt.Errorf("the agent of node %s has recorded nothing yet; try again in a few seconds", from.node)
	}
	first, last := all.Minutes[0].From, all.Minutes[len(all.Minutes)-1].To
	if out == "" {
		out = from.node + "-" + last.UTC().Format("20060102T150405") + extension
	}
	size, err := writeRecording(out, all)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s: node %s from %s to %s, %.1f MiB\n", out, from.node, first.UTC().Format("2006-01-02 15:04:05"),
		last.UTC().Format("15:04:05 UTC"), float64(size)/(1<<20))
	for _, p := range all.About.Pins {
		fmt.Fprintf(s.Out, "  kept for longer: %s, %s\n", p.At.UTC().Format("2006-01-02 15:04:05 UTC"), p.Why)
	}
	fmt.Fprintf(s.Out, "Next: kubectl mbcas story %s\n", out)
	return nil
}

// writeRecording writes a new file, which the user alone may read.
func writeRecording(path string, rec *record.Recording) (size int64, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return 0, fmt.Errorf("%s exists; name another file with -o", path)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := rec.Write(file); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ErrOtherResults is the error of replay if a result is another than the recorded one. The first has been printed.
var ErrOtherResults = errors.New("the replay gives other results than those recorded")

func replayCommand(s Streams, f *flags) *cobra.Command {
	var from source
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Run the rounds of a recording again, and compare the results",
		Long: "Run all rounds of a recording again, and compare each result with the one of the agent: limits, what binds them,\n" +
			"what is published. The same version of MBCAS gives the same results on each machine.",
		Example: "  kubectl mbcas replay node-1-20261121T120000" + extension,
		Args:    from.args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := from.read(cmd.Context(), f, s)
			if err != nil {
				return err
			}
			return replayed(s, rec)
		},
	}
	from.bind(cmd)
	return cmd
}

func replayed(s Streams, rec *record.Recording) error {
	sum, err := replay.Play(rec, func(*replay.Frame) error { return nil })
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "Node %s, MBCAS %s on %s, from %s to %s.\n", rec.About.Node, rec.About.Version, rec.About.Arch,
		sum.From.UTC().Format("2006-01-02 15:04:05"), sum.To.UTC().Format("15:04:05 UTC"))
	fmt.Fprintf(s.Out, "%s, %s, %s and %s.\n", format.Plural(sum.Rounds, "round"), format.Plural(sum.Looks, "look"),
		format.Plural(sum.Joins, "join"), format.Plural(sum.Decisions, "decision"))
	if sum.Missing > 0 {
		fmt.Fprintf(s.Out, "The recording no longer has %v of this time.\n", sum.Missing.Round(time.Second))
	}
	if sum.First != nil {
		fmt.Fprintf(s.Out, "%d results differ from those recorded. The first: %v.\n", sum.Others, sum.First)
		return ErrOtherResults
	}
	fmt.Fprintln(s.Out, "Every result is the one recorded.")
	return nil
}

func storyCommand(s Streams, f *flags) *cobra.Command {
	var from source
	var o output
	cmd := &cobra.Command{
		Use:   "story FILE|POD",
		Short: "Tell in sentences what happened on a node, or to a pod",
		Long: "Tell in sentences with times what happened: when CPU became scarce, which limits were changed and why, which pods\n" +
			"came and went, and what that has brought and cost. It replays a recording: of a file, or of an agent.",
		Example: "  kubectl mbcas story --node node-1\n  kubectl mbcas story cart-7d9f -n shop\n  kubectl mbcas story node-1-20261121T120000" + extension,
		Args:    from.args, ValidArgsFunction: f.completePods,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rec, err := from.read(cmd.Context(), f, s)
			if err != nil {
				return err
			}
			told, err := story.Tell(rec, from.about)
			if err != nil {
				return err
			}
			return o.write(s.Out, told, told.Text)
		},
	}
	from.bind(cmd)
	outputFlag(cmd, &o, asJSON, asYAML)
	return cmd
}

// moment is a time of a recording.
type moment struct{ at, file string }

func (m *moment) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.at, "at", "", "explain the limit at this `time` of the recording, such as 12:03, 12:03:07 (UTC) or 2026-11-21T12:03:07Z")
	cmd.Flags().StringVar(&m.file, "recording", "", "`file` with the recording; by default that of the node's agent")
}

func (m *moment) asked() bool { return m.at != "" || m.file != "" }

// explain explains the limit of a pod at that time. A file needs no cluster; its pod is sought in the namespace of the
// command line, or in all if none is given.
func (m *moment) explain(ctx context.Context, f *flags, s Streams, pod string) (story.Answer, error) {
	from := source{arg: pod}
	if m.file != "" {
		from.arg = m.file
		if !isFile(m.file) {
			from.arg = "." + string(filepath.Separator) + m.file
		}
	}
	if m.at == "" {
		return story.Answer{}, UsageError{Err: errors.New("--recording needs a time: give one with --at")}
	}
	rec, err := from.read(ctx, f, s)
	if err != nil {
		return story.Answer{}, err
	}
	if m.file != "" {
		namespace := f.overrides.Context.Namespace
		from.about = func(n record.Name) bool { return n.Name == pod && (namespace == "" || n.Namespace == namespace) }
	}
	to := time.Time{}
	if n := len(rec.Minutes); n > 0 {
		to = rec.Minutes[n-1].To
	}
	at, err := parseMoment(m.at, to)
	if err != nil {
		return story.Answer{}, UsageError{Err: err}
	}
	return story.At(rec, from.about, at)
}

// parseMoment reads a time. A time of day is the last one that is not after the end of the recording.
func parseMoment(text string, end time.Time) (time.Time, error) {
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
	return time.Time{}, fmt.Errorf("--at %q: want a time such as 12:03, 12:03:07 or 2026-11-21T12:03:07Z, in UTC", text)
}
