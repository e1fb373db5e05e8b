package integration

import (
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

// hostState is what a cluster may leave behind on one.
type hostState struct {
	Mounts     []string // network namespaces that outlive their processes are mounts too
	Cgroups    []string // the first level of every hierarchy, and below it what is named as a cluster's
	Interfaces []string
	Addresses  []string
	Rules      []string // of iptables and nftables
	Sysctls    map[string]string
	Folders    map[string]bool // with fixed names, in others' programs
}

func observeHost(t *testing.T) hostState {
	t.Helper()
	m := hostState{Sysctls: sysctls(t), Folders: map[string]bool{}, Rules: rules(t)}
	mounts, err := mountinfo.GetMounts(nil)
	must.Succeed(t, err)
	for _, mt := range mounts {
		m.Mounts = append(m.Mounts, mt.FSType+" "+mt.Mountpoint)
		if mt.FSType == "cgroup" || mt.FSType == "cgroup2" {
			m.Cgroups = append(m.Cgroups, folders(mt.Mountpoint)...)
		}
	}
	interfaces, err := net.Interfaces()
	must.Succeed(t, err)
	for _, i := range interfaces {
		m.Interfaces = append(m.Interfaces, i.Name)
		addrs, err := i.Addrs()
		must.Succeed(t, err)
		for _, a := range addrs {
			m.Addresses = append(m.Addresses, i.Name+" "+a.String())
		}
	}
	for _, path := range []string{
		"/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/var/lib/cni", "/run/containerd", "/run/netns",
		"/etc/cni", "/opt/cni", "/opt/containerd", "/usr/libexec/kubernetes", "/etc/kubernetes", "/run/flannel",
	} {
		_, err := os.Stat(path)
		m.Folders[path] = err == nil
	}
	slices.Sort(m.Mounts)
	slices.Sort(m.Cgroups)
	return m
}

// withSettingsOf leaves out the settings that b lacks: they come with kernel modules,
// which stay loaded.
func (m hostState) withSettingsOf(b hostState) hostState {
	maps.DeleteFunc(m.Sysctls, func(name, _ string) bool { _, known := b.Sysctls[name]; return !known })
	return m
}

func folders(root string) []string {
	var found []string
	// Programs of the machine make and remove cgroups of their own below the first level.
	for _, pattern := range []string{"*", "*/*kube*", "*/*mbcas*"} {
		paths, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, p := range paths {
			if info, err := os.Stat(p); err == nil && info.IsDir() {
				found = append(found, p)
			}
		}
	}
	return found
}

// rules are the packet filter's; counters are left out.
func rules(t *testing.T) []string {
	t.Helper()
	counter := regexp.MustCompile(`\[[0-9]+:[0-9]+\]|packets [0-9]+ bytes [0-9]+`)
	var all []string
	for _, c := range []string{"iptables-save", "ip6tables-save", "nft list ruleset"} {
		f := strings.Fields(c)
		if _, err := exec.LookPath(f[0]); err != nil {
			t.Logf("no %s here: its rules are not compared", f[0])
			continue
		}
		out, err := exec.Command(f[0], f[1:]...).Output()
		if err != nil {
			t.Logf("%s: %v: its rules are not compared", c, err)
			continue
		}
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") {
				all = append(all, counter.ReplaceAllString(strings.TrimSpace(line), ""))
			}
		}
	}
	return all
}

// moving are settings that change by themselves.
var moving = regexp.MustCompile(`^kernel/(random/|ns_last_pid$|pty/nr$|sched_)|/stat_refresh$` +
	`|^net/netfilter/nf_conntrack_count$|^net/ipv[46]/(conf|neigh)/(mbcas|veth)`)

func sysctls(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	root := os.DirFS("/proc/sys")
	for _, top := range []string{"kernel", "net", "vm"} {
		err := fs.WalkDir(root, top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || moving.MatchString(path) {
				return nil // an interface may vanish while we walk
			}
			if info, err := d.Info(); err != nil || info.Mode()&0o400 == 0 {
				return nil
			}
			if raw, err := fs.ReadFile(root, path); err == nil {
				found[path] = strings.TrimSpace(string(raw))
			}
			return nil
		})
		must.Succeed(t, err)
	}
	return found
}
