package addon

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

const (
	vpaModule  = "k8s.io/autoscaler/vertical-pod-autoscaler"
	vpaLease   = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/vpa-admission-controller"
	vpaWebhook = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vpa-webhook-config"
)

// short is the name of a second recommender, which forgets fast and serves the VPAs that name it. shortEvery is how
// often it recommends, and shortHistory the half-life of its histograms and how much history its bounds want.
const (
	short        = "short"
	shortEvery   = 10 * time.Second
	shortHistory = time.Minute
)

// vpa is the Vertical Pod Autoscaler. The updater does nothing while no admission
// controller shows by its Lease that it is alive, so there are always all three.
var vpa = Addon{
	Name: "vpa",
	Recipe: build.Recipe{
		Prefix:  "vpa-",
		Modules: []string{vpaModule},
		Programs: []build.Program{
			{Name: "recommender", Package: vpaModule + "/pkg/recommender"},
			{Name: "updater", Package: vpaModule + "/pkg/updater"},
			{Name: "admission-controller", Package: vpaModule + "/pkg/admission-controller"},
		},
		Files: []string{"deploy/vpa-v1-crd-gen.yaml", "deploy/vpa-rbac.yaml"},
		Lasts: "3 minutes",
	},
	Needs:    "metrics-server",
	Interval: time.Minute,
	Least:    time.Second,
	Serves:   "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
	Makes:    []string{vpaWebhook, vpaLease},
	accounts: []string{"vpa-recommender", "vpa-updater", "vpa-admission-controller"},
	server:   []string{"localhost"},
	programs: vpaPrograms,
}

func vpaPrograms(r run) []proc.Program {
	local := func(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
	health := func(port int) func(context.Context) error {
		return controlplane.Probe(r.Config, "http://"+local(port)+"/health-check")
	}
	// Which namespace the Lease is in is also read from the environment variable
	// NAMESPACE, which the environment may have.
	return []proc.Program{
		{
			Name: "vpa-recommender", Path: r.program("recommender"),
			Args: []string{
				"--kubeconfig=" + r.kubeconfig("vpa-recommender"),
				"--address=" + local(config.VPARecommenderPort),
				"--recommender-interval=" + r.interval.String(),
			},
			Ready: health(config.VPARecommenderPort),
		},
		{
			Name: "vpa-recommender-" + short, Path: r.program("recommender"),
			Args: []string{
				"--kubeconfig=" + r.kubeconfig("vpa-recommender"),
				"--address=" + local(config.VPAShortPort),
				"--recommender-name=" + short,
				"--recommender-interval=" + min(r.interval, shortEvery).String(),
				"--cpu-histogram-decay-half-life=" + shortHistory.String(),
				"--confidence-interval-cpu=" + shortHistory.String(),
				"--memory-saver=true",
			},
			Ready: health(config.VPAShortPort),
		},
		{
			Name: "vpa-admission-controller", Path: r.program("admission-controller"),
			Args: []string{
				"--kubeconfig=" + r.kubeconfig("vpa-admission-controller"),
				"--address=" + local(config.VPAAdmissionPort),
				"--port=" + strconv.Itoa(config.VPAWebhookPort),
				"--client-ca-file=" + r.Config.PKI("ca.crt"),
				"--tls-cert-file=" + r.certificate(serverName+".crt"),
				"--tls-private-key=" + r.certificate(serverName+".key"),
				"--register-by-url",
				"--webhook-address=https://127.0.0.1",
				"--webhook-port=" + strconv.Itoa(config.VPAWebhookPort),
				"--status-lease-namespace=" + namespace,
			},
			Ready: func(ctx context.Context) error { return leaseHeld(ctx, r) },
		},
		{
			Name: "vpa-updater", Path: r.program("updater"),
			Args: []string{
				"--kubeconfig=" + r.kubeconfig("vpa-updater"),
				"--address=" + local(config.VPAUpdaterPort),
				"--updater-interval=" + r.interval.String(),
				"--admission-controller-status-lease-namespace=" + namespace,
			},
			Ready: health(config.VPAUpdaterPort),
		},
	}
}

// leaseTimeout is after how long the updater takes the admission controller for
// dead, unless set otherwise.
const leaseTimeout = time.Minute

// leaseHeld is nil while the updater takes the admission controller for alive. The
// Lease appears 20 s after the start: the webhook is registered after 10 s, and the
// first renewal is due 10 s later.
func leaseHeld(ctx context.Context, r run) error {
	var lease struct {
		Metadata struct{ CreationTimestamp time.Time }
		Spec     struct{ RenewTime time.Time }
	}
	if err := controlplane.Get(ctx, r.Config, vpaLease, &lease); err != nil {
		return err
	}
	return fresh(lease.Metadata.CreationTimestamp, lease.Spec.RenewTime, time.Now())
}

// fresh is nil if a Lease was made or renewed lately: it is made without a renewal.
func fresh(made, renewed, now time.Time) error {
	last := made
	if renewed.After(made) {
		last = renewed
	}
	if age := now.Sub(last); age > leaseTimeout {
		return fmt.Errorf("lease vpa-admission-controller: not renewed for %s", age.Round(time.Second))
	}
	return nil
}
