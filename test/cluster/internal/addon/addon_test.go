package addon

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/modfile"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/must"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

func programsOf(a Addon, c config.Config, interval time.Duration) []proc.Program {
	return a.Programs(c, interval, func(name string) string { return "/bin/" + name })
}

// values are those of the flag in all the add-on's programs.
func values(programs []proc.Program, flag string) []string {
	var found []string
	for _, p := range programs {
		for _, arg := range p.Args {
			if v, ok := strings.CutPrefix(arg, flag+"="); ok {
				found = append(found, v)
			}
		}
	}
	return found
}

func TestIdentities(t *testing.T) {
	c := withAuthority(t, config.Default("/var/lib/x"))
	for _, a := range All() {
		users := map[string]string{}
		for _, l := range a.Leaves(c) {
			users[l.Name] = l.CN
			if l.Name != serverName && !slices.Contains(l.Groups, "system:serviceaccounts:kube-system") {
				t.Errorf("%s: groups %q are not those of a service account of kube-system", l.Name, l.Groups)
			}
			if slices.Contains(l.Groups, "system:masters") {
				t.Errorf("%s may do everything", l.Name)
			}
		}
		files, err := a.Files(c)
		must.Succeed(t, err)
		for _, p := range programsOf(a, c, a.Interval) {
			// Each program is named as its own account is.
			if want := "system:serviceaccount:kube-system:" + p.Name; users[p.Name] != want {
				t.Errorf("%s acts as %q, want %q", p.Name, users[p.Name], want)
			}
			for _, flag := range []string{"--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"} {
				for _, path := range values([]proc.Program{p}, flag) {
					certificate := filepath.Join(a.PKI(c), p.Name+".crt")
					if !strings.Contains(string(files[path]), certificate) {
						t.Errorf("%s %s: %s does not speak by %s:\n%s", p.Name, flag, path, certificate, files[path])
					}
				}
			}
			if len(values([]proc.Program{p}, "--kubeconfig")) != 1 {
				t.Errorf("%s has no kubeconfig: it would use a pod's service account", p.Name)
			}
		}
	}
}

// withAuthority is c in a folder of the test's with something for a certificate of
// the authority.
func withAuthority(t *testing.T, c config.Config) config.Config {
	t.Helper()
	c.State = t.TempDir()
	must.Succeed(t, os.Mkdir(c.PKI(""), 0o755))
	must.Succeed(t, os.WriteFile(c.PKI("ca.crt"), []byte("the authority"), 0o644))
	return c
}

func TestIntervals(t *testing.T) {
	c := config.Default("/var/lib/x")
	// As their manifests (metrics-server 0.9.0) and their programs (VPA 1.8.1) have them.
	for name, shipped := range map[string]map[string]string{
		"metrics-server": {"--metric-resolution": "15s", "--kubelet-request-timeout": "10s"},
		"vpa":            {"--recommender-interval": "1m0s", "--updater-interval": "1m0s"},
	} {
		a, err := Find(name)
		must.Succeed(t, err)
		for flag, want := range shipped {
			if d := cmp.Diff([]string{want}, values(programsOf(a, c, a.Interval), flag)); d != "" {
				t.Errorf("%s %s (-shipped +got):\n%s", name, flag, d)
			}
			if slices.Contains(values(programsOf(a, c, a.Least), flag), want) {
				t.Errorf("%s %s: stays %s whatever the interval", name, flag, want)
			}
		}
	}
	// metrics-server refuses a time-out of nine tenths of its resolution or more.
	for _, every := range []time.Duration{10 * time.Second, 15 * time.Second, time.Minute} {
		got, err := time.ParseDuration(values(programsOf(metricsServer, c, every), "--kubelet-request-timeout")[0])
		if err != nil || got > every*9/10 {
			t.Errorf("every %v: time-out %v, %v", every, got, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	c := config.Default("/var/lib/x")
	for _, a := range All() {
		for _, p := range programsOf(a, c, a.Interval) {
			addresses := append(values([]proc.Program{p}, "--address"), values([]proc.Program{p}, "--bind-address")...)
			if len(addresses) == 0 {
				t.Errorf("%s: no address is given, so it listens on all", p.Name)
			}
			for _, got := range addresses {
				if host, _, err := net.SplitHostPort(got); err == nil {
					got = host
				}
				if got != "127.0.0.1" && got != c.NodeIP().String() {
					t.Errorf("%s listens on %q", p.Name, got)
				}
			}
		}
	}
}

func TestFindAndValidate(t *testing.T) {
	if _, err := Find("prometheus"); err == nil || !strings.Contains(err.Error(), "metrics-server and vpa") {
		t.Errorf("an unknown add-on: %v, want an error with those there are", err)
	}
	for i, a := range All() {
		if got, err := Find(a.Name); err != nil || got.Name != a.Name {
			t.Errorf("Find(%s) = %s, %v", a.Name, got.Name, err)
		}
		needed := slices.IndexFunc(All(), func(o Addon) bool { return o.Name == a.Needs })
		if a.Needs != "" && needed >= i {
			t.Errorf("%s is before %s, which it needs: up would start it first", a.Name, a.Needs)
		}
		if err := a.Validate(a.Interval); err != nil {
			t.Errorf("%s as shipped: %v", a.Name, err)
		}
		if err := a.Validate(a.Least - 1); err == nil || !strings.Contains(err.Error(), "--interval") {
			t.Errorf("%s below its least: %v", a.Name, err)
		}
	}
}

// The pins in the repository cover the programs that the recipes build.
func TestPinsOfTheRepository(t *testing.T) {
	for _, a := range All() {
		cache, err := a.Open(t.Context(), "../../programs")
		must.Succeed(t, err)
		raw, err := os.ReadFile(filepath.Join(cache.Source, "go.mod"))
		must.Succeed(t, err)
		gomod, err := modfile.Parse("go.mod", raw, nil)
		must.Succeed(t, err)
		for _, p := range a.Recipe.Programs {
			if !slices.ContainsFunc(gomod.Tool, func(t *modfile.Tool) bool { return t.Path == p.Package }) {
				t.Errorf("%s/go.mod: %s is no tool of it, so go.sum need not cover it", cache.Source, p.Package)
			}
		}
	}
}

func TestFresh(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	tests := map[string]struct {
		made, renewed time.Time
		alive         bool
	}{
		"just made, not renewed":  {ago(time.Second), time.Time{}, true},
		"long made, just renewed": {ago(time.Hour), ago(9 * time.Second), true},
		"of a dead controller":    {ago(time.Hour), ago(61 * time.Second), false},
		"never renewed":           {ago(time.Hour), time.Time{}, false},
		"no Lease at all":         {time.Time{}, time.Time{}, false},
	}
	for name, tt := range tests {
		if err := fresh(tt.made, tt.renewed, now); (err == nil) != tt.alive {
			t.Errorf("%s: %v", name, err)
		}
	}
}
