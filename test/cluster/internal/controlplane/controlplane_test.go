package controlplane

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

func allArgs(c config.Config) map[string][]string {
	args := map[string][]string{}
	for _, p := range Programs(c, func(name string) string { return "/bin/" + name }) {
		args[p.Name] = p.Args
	}
	return args
}

func value(t *testing.T, args []string, flag string) string {
	t.Helper()
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, flag+"="); ok {
			return v
		}
	}
	t.Errorf("no flag %s", flag)
	return ""
}

func TestAddresses(t *testing.T) {
	c := config.Default("/var/lib/x")
	all := allArgs(c)
	for program, flags := range map[string][]string{
		"etcd":                    {"--listen-client-urls", "--listen-peer-urls"},
		"kube-apiserver":          {"--bind-address"},
		"kube-controller-manager": {"--bind-address"},
		"kube-scheduler":          {"--bind-address"},
	} {
		for _, flag := range flags {
			got := value(t, all[program], flag)
			if u, err := url.Parse(got); err == nil && u.Host != "" {
				got = u.Hostname()
			}
			want := "127.0.0.1"
			if program == "kube-apiserver" {
				want = "10.96.0.1"
			}
			if got != want {
				t.Errorf("%s %s: listens on %s, want %s", program, flag, got, want)
			}
		}
	}
}

func TestAggregation(t *testing.T) {
	args := allArgs(config.Default("/var/lib/x"))["kube-apiserver"]
	for _, flag := range []string{
		"--client-ca-file", "--requestheader-client-ca-file", "--proxy-client-cert-file", "--proxy-client-key-file",
		"--enable-aggregator-routing",
	} {
		value(t, args, flag)
	}
	if cn := value(t, args, "--requestheader-allowed-names"); cn != "front-proxy-client" {
		t.Errorf("allowed name %q is not the certificate's", cn)
	}
	if value(t, args, "--client-ca-file") == value(t, args, "--requestheader-client-ca-file") {
		t.Error("one authority for clients and for the front proxy: any client could speak for others")
	}
}

func TestHPAWaits(t *testing.T) {
	args := allArgs(config.Default("/var/lib/x"))["kube-controller-manager"]
	// The defaults of kube-controller-manager --help in 1.36.
	for flag, want := range map[string]string{
		"sync-period": "15s", "downscale-stabilization": "5m0s",
		"cpu-initialization-period": "5m0s", "initial-readiness-delay": "30s",
	} {
		if got := value(t, args, "--horizontal-pod-autoscaler-"+flag); got != want {
			t.Errorf("%s is %s, and Kubernetes' own is %s", flag, got, want)
		}
	}
	if got := value(t, HPAWaits(3*time.Second), "--horizontal-pod-autoscaler-downscale-stabilization"); got != "1m0s" {
		t.Errorf("an HPA with an interval of 3 s stabilises for %s, want 20 intervals", got)
	}
}

// Every file that a flag names is below the state folder.
func TestRenderedPathsStayInState(t *testing.T) {
	for program, args := range allArgs(config.Default("/var/lib/x")) {
		for _, a := range args {
			_, v, _ := strings.Cut(a, "=")
			if strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "/var/lib/x/") {
				t.Errorf("%s: %s is outside the state folder", program, a)
			}
		}
	}
}
