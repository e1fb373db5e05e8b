package clean

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
func Observe() (Before, error) {
	b := Before{Sysctls: map[string]string{}}
	for _, name := range sysctls {
		raw, err := os.ReadFile(filepath.Join(procSys, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		if err != nil {
			return b, err
		}
		b.Sysctls[name] = strings.TrimSpace(string(raw))
	}
	for _, path := range fixedPaths {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			b.Absent = append(b.Absent, path)
		}
	}
	root, err := unifiedRoot()
	if err != nil || root == "" {
		return b, err
	}
	b.Controllers, err = controllers(root)
	return b, err
}

func unifiedRoot() (string, error) {
	mounts, err := Mounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.Type == "cgroup2" {
			return m.Point, nil
		}
	}
	return "", nil
}

func controllers(root string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(root, "cgroup.subtree_control"))
	return strings.Fields(string(raw)), err
}

// Save writes b to path unless a former up did: only the first one saw the
// machine as it was.
func (b Before) Save(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	raw, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.WriteFile(path+".tmp", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// LoadBefore reads what Save wrote; ok is false when no node was ever set up.
func LoadBefore(path string) (b Before, ok bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, false, nil
	}
	if err != nil {
		return b, false, err
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		return b, false, fmt.Errorf("%s: %w", path, err)
	}
	return b, true, nil
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
	root, err := unifiedRoot()
	if err != nil || root == "" {
		return errors.Join(append(errs, err)...)
	}
	passed, err := controllers(root)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, c := range passed {
		if slices.Contains(b.Controllers, c) {
			continue
		}
		// Others may need it by now; then it stays, which does no harm.
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("-"+c), 0o644)
	}
	return errors.Join(errs...)
}
