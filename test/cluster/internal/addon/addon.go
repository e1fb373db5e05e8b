// Package addon describes what can run beside a cluster for a test:
// metrics-server, and the Vertical Pod Autoscaler. They are the real programs, as
// the HPA controller is, under the names and with the rights of their own
// manifests, which are read from their modules.
//
// Promises:
//   - A program acts as the service account that its own manifests name, so what it
//     may do, and which user it is in the audit log, is as on any cluster: TestIdentities.
//   - Programs have the intervals that they ship with unless set otherwise:
//     TestIntervals.
//   - Every address is one of this machine, but for the VPA's webhook, which cannot
//     be told one: TestAddresses.
package addon

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/mbcas/mbcas/test/cluster/internal/build"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/controlplane"
	"github.com/mbcas/mbcas/test/cluster/internal/pki"
	"github.com/mbcas/mbcas/test/cluster/internal/proc"
)

// Addon is one of them.
type Addon struct {
	Name   string
	Recipe build.Recipe

	// Needs is the add-on that this one is of no use without, or "".
	Needs string

	// Interval is that of its programs, as shipped; Least is the shortest
	// that they take.
	Interval, Least time.Duration

	// Serves is an API path that answers once the API server knows its objects, or "".
	Serves string

	// Makes are API paths of what its programs make for themselves. They outlive the
	// programs, and would tell that one is alive which is not.
	Makes []string

	accounts []string // service accounts of kube-system that its programs act as
	server   []string // names of the certificate it serves with; none: it does not
	objects  func(config.Config) ([]byte, error)
	programs func(run) []proc.Program
}

// run is what the programs of an add-on are made from.
type run struct {
	config.Config
	addon    Addon
	interval time.Duration
	program  func(name string) string
}

// All are the add-ons, each after what it needs.
func All() []Addon { return []Addon{metricsServer, vpa} }

// Find is the add-on with the name.
func Find(name string) (Addon, error) {
	var names []string
	for _, a := range All() {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Addon{}, fmt.Errorf("no add-on %q; there are %s", name, strings.Join(names, " and "))
}

// Validate returns whether the add-on's programs can have that interval.
func (a Addon) Validate(interval time.Duration) error {
	if interval < a.Least || interval > time.Hour {
		return fmt.Errorf("--interval %v: %s takes %v to 1h", interval, a.Name, a.Least)
	}
	return nil
}

// Open is the add-on's set of programs. It builds nothing. programs is the folder
// test/cluster/programs; the add-ons' pins are beside it.
func (a Addon) Open(ctx context.Context, programs string) (build.Cache, error) {
	return build.Open(ctx, filepath.Join(filepath.Dir(programs), "addons", a.Name), a.Recipe)
}

// Version is that of the add-on's programs.
func (a Addon) Version(cache build.Cache) string { return cache.Versions[a.Recipe.Modules[0]] }

// Dir holds what the programs read besides certificates.
func (a Addon) Dir(c config.Config) string { return c.Path("addons", a.Name) }

// PKI is the folder of the add-on's certificates.
func (a Addon) PKI(c config.Config) string { return c.PKI(a.Name) }

// certificate is a file in that folder.
func (r run) certificate(name string) string { return filepath.Join(r.addon.PKI(r.Config), name) }

// kubeconfig is the one of the service account.
func (r run) kubeconfig(account string) string {
	return filepath.Join(r.addon.Dir(r.Config), account+".kubeconfig")
}

const namespace = "kube-system"

// serverName is the file of the certificate that an add-on serves with.
const serverName = "server"

// Leaves are the add-on's certificates. A client certificate stands for a service
// account by carrying its user name and groups: unlike a token it does not expire
// while the cluster lives.
func (a Addon) Leaves(c config.Config) []pki.Leaf {
	var leaves []pki.Leaf
	for _, account := range a.accounts {
		leaves = append(leaves, pki.Leaf{
			Name: account, CA: "ca",
			CN:     "system:serviceaccount:" + namespace + ":" + account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
		})
	}
	if len(a.server) > 0 {
		hosts := append([]string{c.NodeIP().String(), "127.0.0.1"}, a.server...)
		leaves = append(leaves, pki.Leaf{Name: serverName, CA: "ca", CN: a.Name, Hosts: hosts})
	}
	return leaves
}

// Files are what the programs read besides certificates, and the manifest of what
// stands for a part that a cluster has and this one has not, by path.
func (a Addon) Files(c config.Config) (map[string][]byte, error) {
	files := map[string][]byte{}
	r := run{Config: c, addon: a}
	for _, account := range a.accounts {
		files[r.kubeconfig(account)] = controlplane.Kubeconfig(c, filepath.Join(a.Name, account))
	}
	if a.objects == nil {
		return files, nil
	}
	text, err := a.objects(c)
	files[filepath.Join(a.Dir(c), objectsFile)] = text
	return files, err
}

const objectsFile = "objects.json"

// Manifests are the files with the add-on's API objects: out of its module, then
// that of Files.
func (a Addon) Manifests(c config.Config, cache build.Cache) []string {
	var paths []string
	for _, f := range a.Recipe.Files {
		paths = append(paths, cache.Program(filepath.Base(f)))
	}
	if a.objects != nil {
		paths = append(paths, filepath.Join(a.Dir(c), objectsFile))
	}
	return paths
}

// Programs are the add-on's processes in the order of their start.
func (a Addon) Programs(c config.Config, interval time.Duration, program func(name string) string) []proc.Program {
	return a.programs(run{Config: c, addon: a, interval: interval, program: program})
}
