package clean

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Before is what the machine was like before a node was set up on it.
type Before struct {
	// Sysctls are values by name with slashes, such as "vm/overcommit_memory".
	Sysctls map[string]string `json:"sysctls"`

	// Absent are folders with fixed names, in others' programs, that did not exist.
	Absent []string `json:"absent"`

	// Controllers were passed on by the root of the v2 hierarchy.
	Controllers []string `json:"controllers"`
}

// sysctls are the settings that a kubelet, a runtime or a CNI plugin may change,
// in the order in which they are put back: ip_forward resets the others below it.
var sysctls = []string{
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
	"net/ipv4/ip_forward",
	"net/ipv4/conf/all/accept_redirects",
	"net/ipv4/conf/default/accept_redirects",
	"net/ipv4/conf/all/rp_filter",
	"net/ipv4/conf/all/route_localnet",
	"net/ipv6/conf/all/forwarding",
	"net/bridge/bridge-nf-call-iptables",
	"net/bridge/bridge-nf-call-ip6tables",
}

// fixedPaths are made by kubelet, containerd and libcni wherever their settings
// point. Parents come before their children.
var fixedPaths = []string{
	"/var/lib/kubelet",
	"/var/lib/kubelet/device-plugins",
	"/var/log/containers",
	"/var/log/pods",
	"/var/lib/cni",
	"/run/containerd",
	"/run/containerd/s",
	"/run/mount",
	"/run/netns",
	"/etc/cni",
	"/opt/cni",
	"/opt/containerd",
	"/usr/libexec/kubernetes",
}

const procSys = "/proc/sys"

// Observe records the state of the machine.
func Observe() (*Before, error) {
	b := &Before{Sysctls: map[string]string{}}
	for _, name := range sysctls {
		raw, err := os.ReadFile(filepath.Join(procSys, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		if err != nil {
			return nil, err
		}
		b.Sysctls[name] = strings.TrimSpace(string(raw))
	}
	for _, path := range fixedPaths {
		there, err := exists(path)
		if err != nil {
			return nil, err
		}
		if !there {
			b.Absent = append(b.Absent, path)
		}
	}
	var err error
	_, b.Controllers, err = passedOn()
	return b, err
}

// passedOn are the controllers that the root of the v2 hierarchy passes on, and the file that says so.
func passedOn() (file string, controllers []string, err error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	if err != nil || len(mounts) == 0 {
		return "", nil, err
	}
	file = filepath.Join(mounts[0].Mountpoint, "cgroup.subtree_control")
	raw, err := os.ReadFile(file)
	return file, strings.Fields(string(raw)), err
}

// restore puts back each setting that differs.
func (b Before) restore() error {
	var errs []error
	for _, name := range sysctls {
		want, ok := b.Sysctls[name]
		if !ok {
			continue
		}
		path := filepath.Join(procSys, name)
		raw, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(raw)) != want {
			err = os.WriteFile(path, []byte(want), 0o644)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("put back %s=%s: %w", name, want, err))
		}
	}
	file, now, err := passedOn()
	for _, c := range now {
		if !slices.Contains(b.Controllers, c) {
			// Others may need it by now; then it stays, which does no harm.
			_ = os.WriteFile(file, []byte("-"+c), 0o644)
		}
	}
	return errors.Join(append(errs, err)...)
}
