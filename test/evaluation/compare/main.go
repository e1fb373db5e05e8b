// Command compare plays open-loop requests to a service of a cluster, in turn with and without MBCAS in its namespace,
// and prints the paired ratios of p99 and of throttling.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mbcas/mbcas/test/evaluation/internal/compare"
	"github.com/mbcas/mbcas/test/internal/program"
)

// errUsage marks a command line that cannot be understood.
var errUsage = errors.New("usage: compare --namespace NAMESPACE --url URL [flags]")

func main() { program.Main("compare", errUsage, run) }

// options are the command line.
type options struct {
	compare.Settings
	kubeconfig, out string
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("compare", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig (default $KUBECONFIG, or ~/.kube/config)")
	fs.StringVar(&o.Namespace, "namespace", "",
		"namespace of the service; its label mbcas.io/mode changes, and is put back")
	fs.StringVar(&o.Selector, "selector", "",
		"labels of the pods whose throttling is told (default all of the namespace)")
	fs.StringVar(&o.URL, "url", "", "URL of the service, as clients reach it")
	fs.StringVar(&o.Baseline, "baseline", compare.Restore, "mode to compare with: restore or recommend")
	fs.IntVar(&o.Pairs, "pairs", 5, "how often each mode is played")
	fs.Uint64Var(&o.Seed, "seed", 1, "seed of arrivals and of the order of modes")
	fs.Float64Var(&o.Rate, "rate", 50, "requests per second")
	fs.DurationVar(&o.Settle, "settle", 75*time.Second, "load before what counts, after each change of the mode")
	fs.DurationVar(&o.Length, "for", time.Minute, "load that counts, in each run")
	fs.DurationVar(&o.Timeout, "timeout", 10*time.Second, "after how long a request counts as not served")
	fs.StringVar(&o.out, "json", "", "file for all runs and the summary as JSON (default none)")
	fs.Usage = func() {
		fmt.Fprintln(stderr, errUsage)
		fs.PrintDefaults()
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return o, err
	case err != nil:
		return o, fmt.Errorf("%w: %w", errUsage, err)
	case fs.NArg() > 0:
		return o, fmt.Errorf("%w: %q", errUsage, fs.Arg(0))
	}
	if err := o.Validate(); err != nil {
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	return play(ctx, o, client, stdout)
}

// document is what --json writes.
type document struct {
	Settings compare.Settings `json:"settings"`
	Runs     []compare.Run    `json:"runs"`
	Summary  compare.Summary  `json:"summary"`
}

// play plays, and tells what there is, also after an error.
func play(ctx context.Context, o options, client kubernetes.Interface, stdout io.Writer) error {
	c := compare.Comparison{
		Settings: o.Settings, Send: compare.Get(o.URL),
		Target: &compare.Cluster{Client: client, Namespace: o.Namespace, Selector: o.Selector},
		Say:    func(format string, args ...any) { fmt.Fprintf(stdout, format+"\n", args...) },
	}
	c.Say("%d pairs of %s and enforce in namespace %s: about %v", o.Pairs, o.Baseline, o.Namespace,
		o.Takes().Round(time.Second))
	runs, err := c.Run(ctx)
	if len(runs) == 0 {
		return err
	}
	d := document{o.Settings, runs, compare.Summarise(runs, o.Baseline)}
	for _, line := range d.Summary.Lines(o.Baseline) {
		c.Say("%s", line)
	}
	if o.out == "" {
		return err
	}
	text, jsonErr := json.MarshalIndent(d, "", "\t")
	return errors.Join(err, jsonErr, os.WriteFile(o.out, append(text, '\n'), 0o644))
}
