// Package node is the node side of the cluster: containerd, kubelet, and the
// bridge that pods are on; of the first node of the machine, and of those beside it.
//
// Promises:
//   - Settings for cgroup v1 are given only where v1 carries the cpu controller:
//     TestKindsOfNodes.
//   - Nothing the node writes by our choice lies outside the state folder:
//     TestRenderedPathsStayInState.
package node

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

// Host is what this machine offers to a node.
type Host struct {
	Containerd string // paths of programs
	Ctr        string
	CNI        string // folder of the CNI plugins
	Cgroups    CgroupMode
	Overlay    bool // false where the state folder does not support overlay layers
}

// CgroupMode says which cgroup version carries the cpu controller.
type CgroupMode string

const (
	V1     CgroupMode = "v1"
	Hybrid CgroupMode = "hybrid" // cpu on v1, a v2 tree without it beside
	V2     CgroupMode = "v2"
)

// cniFolders are where distributions put the plugins.
var cniFolders = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// Inspect examines this machine. missing lists, in a user's words, each thing that
// keeps a node from running; with any of it, Host is incomplete.
func Inspect(c config.Config) (h Host, missing []string) {
	if os.Geteuid() != 0 {
		return h, []string{"not root: a kubelet cannot run"}
	}
	look := func(program, pkg string) string {
		path, err := exec.LookPath(program)
		if err != nil {
			missing = append(missing, fmt.Sprintf("no %s in PATH (Debian package %s)", program, pkg))
		}
		return path
	}
	h.Containerd = look("containerd", "containerd")
	h.Ctr = look("ctr", "containerd")
	look("runc", "runc")
	for _, dir := range cniFolders {
		if h.CNI == "" && hasPlugins(dir) {
			h.CNI = dir
		}
	}
	if h.CNI == "" {
		where := strings.Join(cniFolders, ", ")
		missing = append(missing, "no CNI plugins in "+where+" (Debian package containernetworking-plugins)")
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return h, append(missing, err.Error())
	}
	h.Cgroups = cgroupMode(mounts)
	if h.Cgroups == "" {
		missing = append(missing, "no cgroup mount with a cpu controller")
	}
	h.Overlay = overlays(mounts, c.State)
	return h, missing
}

// overlays says whether the filesystem that holds path can carry overlay layers.
func overlays(mounts []*mountinfo.Info, path string) bool {
	best := &mountinfo.Info{}
	for _, m := range mounts {
		holds := m.Mountpoint == "/" || strings.HasPrefix(path+"/", m.Mountpoint+"/")
		if holds && len(m.Mountpoint) >= len(best.Mountpoint) {
			best = m
		}
	}
	return best.FSType != "overlay" && best.FSType != "tmpfs"
}

func hasPlugins(dir string) bool {
	for _, p := range []string{"bridge", "host-local", "loopback"} {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			return false
		}
	}
	return true
}

func cgroupMode(mounts []*mountinfo.Info) CgroupMode {
	v2, cpuOnV1 := false, false
	for _, m := range mounts {
		v2 = v2 || m.FSType == "cgroup2"
		cpuOnV1 = cpuOnV1 || m.FSType == "cgroup" && slices.Contains(strings.Split(m.VFSOptions, ","), "cpu")
	}
	switch {
	case cpuOnV1 && v2:
		return Hybrid
	case cpuOnV1:
		return V1
	case v2:
		return V2
	default:
		return ""
	}
}

// Conflicts says what on this machine already uses what the cluster would take. It
// is asked before the cluster makes anything.
func Conflicts(c config.Config) []string {
	var found []string
	if _, err := net.InterfaceByName(config.Bridge); err == nil {
		const what = "the interface %s exists: another cluster has it; stop that with mbcas-cluster down"
		found = append(found, fmt.Sprintf(what, config.Bridge))
	}
	dirs, err := clean.Cgroups("kubepods", config.AddedNodes)
	if err != nil {
		found = append(found, err.Error())
	}
	if len(dirs) > 0 {
		found = append(found, fmt.Sprintf("%s exists: another kubelet is or was on this machine", dirs[0]))
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return append(found, err.Error())
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && (p.Overlaps(c.PodRange) || p.Overlaps(c.ServiceRange)) {
			const what = "this machine's address %v is in the cluster's ranges; choose other ones (up --help)"
			found = append(found, fmt.Sprintf(what, p))
		}
	}
	return found
}
