package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// endTimeout is how long a program may take to end after an interrupt: the cluster has much to stop.
const endTimeout = 3 * time.Minute

// run runs a program, from the root of the repository unless it has another folder. What it prints is
// shown unless it goes elsewhere; an error ends with its messages.
func (r *repo) run(cmd *exec.Cmd) error {
	var messages bytes.Buffer
	cmd.Stderr = io.MultiWriter(r.out, &messages)
	if cmd.Stdout == nil {
		cmd.Stdout = r.out
	}
	if cmd.Dir == "" {
		cmd.Dir = r.root
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = endTimeout
	if err := cmd.Run(); err != nil {
		command := strings.Join(append([]string{filepath.Base(cmd.Path)}, cmd.Args[1:]...), " ")
		return fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(messages.Bytes()))
	}
	return nil
}

// output runs a program and returns what it prints.
func (r *repo) output(cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout = &out
	err := r.run(cmd)
	return strings.TrimSpace(out.String()), err
}

// commit is the short hash of what is tested, with "-dirty" where files differ from it.
func (r *repo) commit(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*")
	hash, err := r.output(cmd)
	if err != nil {
		return "unknown"
	}
	return hash
}

// goTest runs `go test -json` for packages in a folder and counts its events. A failure that is
// counted is no error.
func (r *repo) goTest(ctx context.Context, dir string, env, flags []string, packages ...string) error {
	before := r.results.failed
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", anyClone}, flags, packages)...)
	cmd.Dir, cmd.Env = filepath.Join(r.root, dir), append(os.Environ(), env...)
	events, written := io.Pipe()
	cmd.Stdout = written
	read := make(chan error, 1)
	go func() {
		err := r.results.read(events)
		events.Close() // if it ended early, go test would wait for it for ever
		read <- err
	}()
	err := r.run(cmd)
	written.Close()
	unread := <-read
	var exit *exec.ExitError
	if unread == nil && r.results.failed > before && errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil
	}
	return errors.Join(err, unread)
}

// read counts the events of one `go test -json`. Lines that are no events are printed.
func (r *results) read(events io.Reader) error {
	in := bufio.NewScanner(events)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if line := strings.TrimSpace(in.Text()); json.Unmarshal([]byte(line), &e) == nil {
			r.add(e)
		} else if line != "" {
			fmt.Fprintln(r.out, line)
		}
	}
	return in.Err()
}

// localCluster is the cluster that the end-to-end suites share.
type localCluster struct {
	env     []string // of the tests; nil: it was not started
	started bool     // by this run, which stops it
}

// errNoNode says that a suite needs a node where none can run.
var errNoNode = errors.New("no node")

// e2e returns a suite: a test of test/e2e, on the shared cluster, with the folders of tools in its environment.
// Where no node can run, it is a skip.
func (r *repo) e2e(test string, tools ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := fmt.Errorf("%w: needs root on Linux", errNoNode)
		if os.Geteuid() == 0 {
			err = r.startCluster(ctx)
		}
		if errors.Is(err, errNoNode) {
			r.results.skip("test/e2e", "", err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		env := slices.Clone(r.cluster.env)
		for _, tool := range tools {
			dir, err := r.output(r.program(ctx, "tool", tool))
			if err != nil {
				return err
			}
			env = append(env, "MBCAS_"+strings.ToUpper(tool)+"="+dir)
		}
		r.results.perTest = true
		defer func() { r.results.perTest = false }()
		// Its parallel tests wait more than they compute.
		flags := []string{"-count=1", "-timeout=60m", "-parallel=8", "-run=^" + test + "$"}
		return r.goTestRepeating(ctx, "", env, flags, "./test/e2e")
	}
}

// notStarted is how status says that the cluster does not run.
var notStarted = regexp.MustCompile(`(?m)^etcd .*does not run`)

// startCluster starts the local cluster, unless it runs, and loads the images. A cluster that ran before
// is left running at the end; what is left of one that does not run is removed first.
func (r *repo) startCluster(ctx context.Context) error {
	if r.cluster.env != nil {
		return nil
	}
	up := []string{"up"}
	_, err := r.output(r.program(ctx, "kubeconfig"))
	runs := err == nil
	if status, _ := r.output(r.program(ctx, "status")); runs && notStarted.MatchString(status) {
		runs = false // its machine was stopped, perhaps in the middle of a test
		if err := r.run(r.program(ctx, "down")); err != nil {
			return err
		}
	}
	if !runs {
		r.cluster.started = true
		up = append(up, "--hpa-sync=5s") // the HPA acts three times as fast: the suites take two minutes less
	}
	if err := r.run(r.program(ctx, up...)); err != nil {
		if strings.Contains(err.Error(), "no node can run here") {
			r.cluster.started = false
			err = fmt.Errorf("%w: %w", errNoNode, err)
		}
		return err
	}
	if err := r.run(exec.CommandContext(ctx, "make", "--no-print-directory", "load")); err != nil {
		return err
	}
	kubeconfig, err := r.output(r.program(ctx, "kubeconfig"))
	if err != nil {
		return err
	}
	assets, err := r.assets(ctx)
	if err != nil {
		return err
	}
	r.cluster.env = []string{
		"KUBECONFIG=" + kubeconfig, "KUBEBUILDER_ASSETS=" + assets,
		"PATH=" + assets + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	return nil
}

// stopCluster stops the cluster that this run started. It runs after an interrupt, too.
func (r *repo) stopCluster(ctx context.Context) {
	if !r.cluster.started {
		return
	}
	r.cluster = localCluster{}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := r.run(r.program(ctx, "down")); err != nil {
		r.results.run("mbcas-cluster down", err)
	}
	r.leavesNoProcess("the local cluster")
}

// program is a command of mbcas-cluster.
func (r *repo) program(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(r.root, "bin", "mbcas-cluster"), args...)
}

// assets is the folder with etcd, kube-apiserver and kubectl. The first time takes minutes.
func (r *repo) assets(ctx context.Context) (string, error) {
	return r.output(r.program(ctx, "assets"))
}
