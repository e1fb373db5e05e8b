package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/buildinfo"
	"github.com/mbcas/mbcas/internal/controller"
	"github.com/mbcas/mbcas/internal/controller/metrics"
	"github.com/mbcas/mbcas/internal/demandsignal"
	"github.com/mbcas/mbcas/internal/events"
	"github.com/mbcas/mbcas/internal/fleet"
	"github.com/mbcas/mbcas/internal/flowcontrol"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/program"
	"github.com/mbcas/mbcas/internal/sharding"
)

// settings are the flags of the controller.
type settings struct {
	controller      controller.Config
	kubeconfig      string
	metrics, health string
	elect           bool
	qps             float64
	logLevel        slog.Level
	published       kube.Settings // what the flags came to
}

func serveFlags(args []string, stderr io.Writer) (settings, error) {
	s := settings{controller: controller.DefaultConfig()}
	c := &s.controller
	fs := flag.NewFlagSet("mbcas-controller", flag.ContinueOnError)
	fs.Func("mode", "what happens in namespaces without the label mbcas.io/mode: off, recommend, enforce or restore (default recommend)", func(v string) error {
		m, ok := kube.ParseMode(v)
		if !ok {
			return fmt.Errorf("want off, recommend, enforce or restore")
		}
		c.Mode = m
		return nil
	})
	fs.StringVar(&c.Namespace, "namespace", c.Namespace, "namespace that MBCAS runs in")
	resizeFlags(fs, &c.Resizes)
	fs.DurationVar(&c.FreezeAfter, "freeze-after", c.FreezeAfter, "time without a renewed Lease after which an agent's decisions are no longer applied")
	fs.DurationVar(&c.RestoreAfter, "restore-after", c.RestoreAfter, "time without a renewed Lease after which the declared limits of a node's pods are restored")
	fs.DurationVar(&c.StartGrace, "start-grace", c.StartGrace, "time after its start in which a pod is not lowered")
	fs.IntVar(&c.MaxRaise, "max-raise", c.MaxRaise,
		"multiple of its declared limit that the limit of a container reaches at most, where neither its pod nor its namespace sets it")
	fs.DurationVar(&c.BoostGrace, "startup-boost-grace", c.BoostGrace,
		"time after it has become Ready in which a pod keeps the limit of its start-up boost")
	fs.DurationVar(&c.BoostMax, "startup-boost-max", c.BoostMax,
		"longest time after its start in which a pod has the limit of its start-up boost")
	fs.DurationVar(&c.RestartGrace, "restart-grace", c.RestartGrace, "time after a restart of a container in which its pod is not lowered")
	fs.DurationVar(&c.ExternalChangeHoldOff, "external-change-holdoff", c.ExternalChangeHoldOff, "time for which a pod is not resized after an external change of its limits")
	fs.DurationVar(&c.RollbackHoldOff, "rollback-holdoff", c.RollbackHoldOff, "time for which a pod is not lowered after a harmful decrease, or not resized after a conflicting writer")
	fs.DurationVar(&c.RollbackWindow, "rollback-window", c.RollbackWindow, "time after a decrease in which a restart or a lost readiness counts as harm")
	fs.DurationVar(&c.HPACooldown, "hpa-cooldown", c.HPACooldown, "least time between two decreases of a pod that an HPA scales, where it allows any")
	fs.DurationVar(&c.CoordinationInterval, "coordination-interval", c.CoordinationInterval, "time between two passes of the coordinator, which moves budget between nodes; 0 switches it off")
	fs.Float64Var(&c.Quota.Headroom, "quota-headroom", c.Quota.Headroom, "share of a ResourceQuota that increases leave free for new pods")
	fs.DurationVar(&c.ActuationTimeout, "actuation-timeout", c.ActuationTimeout, "time that a kubelet has to carry out a resize")
	fs.DurationVar(&c.Signal.Interval, "signal-interval", c.Signal.Interval, "time between two reads of the metrics of DemandSignals, 1s to 1m; 0 for never")
	fs.Float64Var(&c.Actuator.DeadBand, "dead-band", c.Actuator.DeadBand, "relative change of a limit below which no resize is made")
	fs.Float64Var(&c.Actuator.MaxDecreaseFactor, "max-decrease-factor", c.Actuator.MaxDecreaseFactor, "largest factor by which one resize lowers a limit; below the declared limit it is 4 at least")
	fs.DurationVar(&c.Actuator.DecreaseCooldown, "decrease-cooldown", c.Actuator.DecreaseCooldown, "least time between two decreases of a pod")
	fs.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account, else $KUBECONFIG)")
	fs.StringVar(&s.metrics, "metrics-address", ":8080", "address of /metrics; 0 for none")
	fs.StringVar(&s.health, "health-address", ":8081", "address of /healthz and /readyz")
	fs.BoolVar(&s.elect, "leader-elect", true, "do the work that one replica does for all only while holding the Lease "+kube.LeaderLease)
	fs.Float64Var(&s.qps, "qps", 0, "requests per second to the API server at most, for each kind of object, twice as many in a burst; 0: what max-resizes-per-second needs")
	fs.TextVar(&s.logLevel, "log-level", slog.LevelInfo, "least level of log lines: debug, info, warn or error")
	if err := parse(fs, args, stderr); err != nil {
		return s, err
	}
	if err := errors.Join(c.Validate(), s.deriveQPS()); err != nil {
		return s, program.UsageError{Err: err}
	}
	s.published = kube.NewSettings(build(), effective(fs, map[string]string{"mode": string(c.Mode)}))
	return s, nil
}

// resizeFlags are the flags that bound resizes.
func resizeFlags(fs *flag.FlagSet, c *flowcontrol.Config) {
	fs.Float64Var(&c.PerSecond, "resizes-per-second", c.PerSecond, "bound on the resizes of the whole cluster, before what each node adds")
	fs.Float64Var(&c.PerNode, "resizes-per-second-and-node", c.PerNode, "what each node of the cluster adds to that bound")
	fs.Float64Var(&c.MaxPerSecond, "max-resizes-per-second", c.MaxPerSecond, "bound on the resizes of a cluster of any size")
	fs.IntVar(&c.Burst, "resizes-burst", c.Burst, "resizes that may be made at once within that bound; it grows with the cluster as the bound does")
	fs.Float64Var(&c.NodePerSecond, "node-resizes-per-second", c.NodePerSecond, "bound on the resizes of one node")
	fs.IntVar(&c.NodeBurst, "node-resizes-burst", c.NodeBurst, "resizes of one node that may be made at once within that bound")
}

// deriveQPS has the client send what the resizes need. A lower bound would be the one that holds,
// unseen.
func (s *settings) deriveQPS() error {
	need := s.controller.Resizes.QPS()
	switch {
	case s.qps == 0:
		s.qps = need
	case s.qps < need:
		return fmt.Errorf("--qps=%v is less than the %v that --max-resizes-per-second=%v needs: lower that, or leave --qps out",
			s.qps, need, s.controller.Resizes.MaxPerSecond)
	}
	return nil
}

// effective are the values of all flags; those of flags that are functions are given.
func effective(fs *flag.FlagSet, functions map[string]string) map[string]string {
	values := map[string]string{}
	fs.VisitAll(func(f *flag.Flag) { values[f.Name] = f.Value.String() })
	maps.Copy(values, functions)
	return values
}

func newLog(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// logLibraries has the libraries log as we do. They keep their logger where all can see it, and no lock on it: nothing of them may run yet.
func logLibraries(w io.Writer, level slog.Leveler) {
	log := newLog(w, level)
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetSlogLogger(log)
}

// serve runs the controller until it is told to stop. level is that of all logs, those of the libraries, too.
func serve(ctx context.Context, args []string, level *slog.LevelVar, stdout, stderr io.Writer) error {
	s, err := serveFlags(args, stderr)
	if err != nil {
		return err
	}
	level.Set(s.logLevel)
	log := newLog(stdout, level)
	config, err := restConfig(s.kubeconfig, s.qps)
	if err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: controller.CacheOptions(s.controller.Namespace),
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: s.health,
		LeaderElection: s.elect, LeaderElectionID: kube.LeaderLease, LeaderElectionNamespace: s.controller.Namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return fmt.Errorf("set up the connection to the API server: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("set up discovery: %w", err)
	}
	metricsAPI, err := demandsignal.NewMetricsAPI(config, mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	replica, err := newReplica(config, scheme, s.controller.Namespace, log)
	if err != nil {
		return err
	}
	counts := metrics.New(crmetrics.Registry)
	r := (&controller.Reconciler{
		Config: s.controller, Gate: flowcontrol.NewGate(disco, mgr.GetClient()), Now: time.Now,
		API: controller.API{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Resize: podresize.New(mgr.GetClient(), kube.FieldManager),
			ReadMetric: metricsAPI.Read, Replica: replica,
		},
		Telemetry: controller.Telemetry{
			Events: events.Bound(mgr.GetEventRecorder(kube.FieldManager), counts.DroppedEvents.Inc), Log: log,
			Audit: slog.New(slog.NewJSONHandler(stdout, nil)).With("audit", true), Metrics: counts,
		},
	}).Init()
	if err := r.Setup(ctx, mgr); err != nil {
		return err
	}
	crmetrics.Registry.MustRegister(ownMetrics(mgr, r)...)
	if err := serveMetrics(ctx, mgr, s.metrics); err != nil {
		return err
	}
	publisher := &settingsPublisher{Client: mgr.GetClient(), Namespace: s.controller.Namespace, Settings: s.published, Log: log}
	if err := mgr.Add(publisher); err != nil {
		return fmt.Errorf("add the publisher of settings: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("resize", r.Gate.Ready); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	log.Info("mbcas-controller starts", "version", build(), "mode", s.controller.Mode, "namespace", s.controller.Namespace)
	return mgr.Start(ctx)
}

// serveMetrics adds the server of /metrics at an address; "" is that of the library, "0" is none.
// The server of the library logs the flag; this one logs the port, which the kernel chooses where
// the flag has port 0.
func serveMetrics(ctx context.Context, mgr ctrl.Manager, address string) error {
	if address == "0" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cmp.Or(address, metricsserver.DefaultBindAddress))
	if err != nil {
		return fmt.Errorf("listen on --metrics-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(crmetrics.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError,
	}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 90 * time.Second}
	if err := mgr.Add(&manager.Server{Name: "metrics", Server: server, Listener: l}); err != nil {
		return fmt.Errorf("add the server of metrics: %w", err)
	}
	return nil
}

// ownMetrics are those of this process, and of all nodes.
func ownMetrics(mgr ctrl.Manager, r *controller.Reconciler) []prometheus.Collector {
	return []prometheus.Collector{
		buildinfo.Gauge("mbcas_controller_build_info", "1, with the version of the controller and of Go.", build()),
		metrics.Leader(mgr.Elected()),
		&fleet.Collector{
			Leases: mgr.GetClient(), Namespace: r.Config.Namespace, Age: r.AgentAge, SilentAfter: r.SilentAfter(),
		},
	}
}

// newReplica is this replica, named by its host, which is its pod, and a random part: no process before
// it or on the same host has its name. Its connection is its own: a renewal of its Lease never waits
// behind other requests.
func newReplica(config *rest.Config, scheme *runtime.Scheme, namespace string, log *slog.Logger) (*sharding.Replica, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find the name of this replica: %w", err)
	}
	own := rest.CopyConfig(config)
	own.QPS, own.Burst = 20, 40
	c, err := client.New(own, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up the connection of this replica: %w", err)
	}
	identity := host + "-" + strings.ToLower(rand.Text()[:8])
	return sharding.New(c, namespace, kube.ReplicaLease(identity), log), nil
}

// restConfig is how the API server is reached.
func restConfig(kubeconfig string, qps float64) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; name a kubeconfig with --kubeconfig, or run in a pod", err)
	}
	config.QPS, config.Burst = float32(qps), int(2*qps)
	config.UserAgent = kube.FieldManager
	return config, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

// newClient reads from the API server itself.
func newClient(kubeconfig string, qps float64) (client.Client, error) {
	config, err := restConfig(kubeconfig, qps)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up the connection to the API server: %w", err)
	}
	return c, nil
}
