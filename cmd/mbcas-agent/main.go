// Command mbcas-agent runs the CPU market of its node. It runs in a DaemonSet, without privileges,
// and needs the host's cgroups mounted read-only.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/mbcas/mbcas/internal/agent"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/program"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	os.Exit(program.ExitCode(err, "mbcas-agent", os.Stderr))
}

// settings are the flags.
type settings struct {
	agent  agent.Config
	listen string
	// debugListen is for what names pods.
	debugListen netip.AddrPort
	kubeconfig  string
	logLevel    slog.Level
}

func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	if program.AsksForVersion(args) {
		_, err := fmt.Fprintln(stdout, "mbcas-agent", version)
		return err
	}
	s, err := parse(args, env, stderr)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(stdout, &slog.HandlerOptions{Level: s.logLevel}))
	slog.SetDefault(log)
	klog.SetSlogLogger(log.With("from", "client-go"))
	boundMemory(env)

	api, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("API server: %w; outside of a cluster name a file with --kubeconfig", err)
	}
	rest.AddUserAgent(api, "mbcas-agent")
	a, err := agent.New(s.agent, api, log)
	if err != nil {
		return err
	}
	var l agent.Listeners
	if l.Cluster, err = net.Listen("tcp", s.listen); err != nil {
		return fmt.Errorf("listen on %s: %w; give another address with --listen", s.listen, err)
	}
	if l.Debug, err = net.Listen("tcp", s.debugListen.String()); err != nil {
		return fmt.Errorf("listen on %s: %w; give another address with --debug-listen", s.debugListen, err)
	}
	log.Info("agent starts", "version", version, "node", s.agent.Node, "interval", s.agent.Interval,
		"listen", l.Cluster.Addr().String(), "debugListen", l.Debug.Addr().String())
	return a.Run(ctx, l)
}

func parse(args []string, env func(string) string, stderr io.Writer) (settings, error) {
	s := settings{agent: agent.DefaultConfig()}
	c := &s.agent
	f := flag.NewFlagSet("mbcas-agent", flag.ContinueOnError)
	f.DurationVar(&c.Interval, "interval", c.Interval, "time from one round to the next, 100ms to 10s")
	f.DurationVar(&c.Round.LookInterval, "look-interval", c.Round.LookInterval, "time from one look to the next, 100ms to below 1s: between "+
		"two rounds, looks at a few containers raise limits sooner; 0: none")
	f.Float64Var(&c.Round.Reserve, "reserve", c.Round.Reserve, "share of the node's allocatable CPU that the market does not "+
		"sell, 0 to below 1: more means less waiting, less means more throughput")
	f.StringVar(&c.Node, "node-name", env("NODE_NAME"), "name of the node (environment NODE_NAME)")
	f.StringVar(&c.Namespace, "namespace", cmp.Or(env("POD_NAMESPACE"), c.Namespace),
		"namespace of the node's Lease (environment POD_NAMESPACE)")
	f.StringVar(&c.Kernel.OwnPod, "pod-uid", env("POD_UID"),
		"UID of the agent's own pod, which identifies the node's cgroups (environment POD_UID)")
	f.StringVar(&c.Kernel.Root, "cgroup-root", "/sys/fs/cgroup", "where the host's /sys/fs/cgroup is mounted")
	f.BoolVar(&c.Kernel.MemoryIOPressure, "memory-io-pressure", false, "read the memory and IO pressure of every "+
		"container, too: the demand of a stalled container is its usage")
	f.DurationVar(&c.Record, "record", c.Record, "for how long the inputs of rounds are kept for kubectl mbcas record, 2m to "+
		"24h; 0: not at all. They take at most 8 MiB")
	f.StringVar(&s.listen, "listen", ":9090", "address for /healthz, /readyz and /metrics")
	loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), kube.AgentDebugPort)
	f.TextVar(&s.debugListen, "debug-listen", loopback, "loopback `address` for /debug/round, which kubectl mbcas "+
		"reads on this port through pods/portforward")
	f.StringVar(&s.kubeconfig, "kubeconfig", "",
		"file with access to the API server; empty: that of the pod's service account")
	f.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	if err := program.Parse(f, args, stderr); err != nil {
		return settings{}, err
	}
	if !s.debugListen.Addr().IsLoopback() {
		return settings{}, program.UsageError{Err: fmt.Errorf("--debug-listen=%s: want a loopback address, such as %s: "+
			"what is served there names pods and asks for no credentials", s.debugListen, loopback)}
	}
	c.Holder, c.Version = cmp.Or(env("POD_NAME"), c.Node), version
	if err := c.Validate(); err != nil {
		return settings{}, program.UsageError{Err: err}
	}
	return s, nil
}

// boundMemory sets the limits of the heap, unless the environment variables GOGC and GOMEMLIMIT do.
func boundMemory(env func(string) string) {
	if env("GOGC") == "" {
		debug.SetGCPercent(agent.GCPercent)
	}
	if env("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(agent.MemoryLimit)
	}
}
