// Package cgroups makes cgroup trees of ordinary files, for tests and benchmarks that
// need a node without its kernel. What it writes reads like the kernel's files.
// Two things differ from a kernel's: files cost less to read, and a removed cgroup answers
// with an empty file instead of ENODEV.
package cgroups

import (
	"path"
	"strings"

	"github.com/mbcas/mbcas/internal/kernel"
)

// Shape is how a node names and arranges its cgroups.
type Shape struct {
	Version kernel.Version // empty: V2
	Driver  kernel.Driver  // empty: Systemd
	// Root is the kubelet's --cgroup-root without slashes: "kubelet" in kind, usually empty.
	Root string
	// Above is a path above everything, as seen from outside of a node that is itself a container.
	Above string
	// Runtime is the prefix of container cgroups: "cri-containerd", "crio", "docker".
	// Empty: cri-containerd. With Cgroupfs only "crio" shows.
	Runtime string
}

func (s Shape) withDefaults() Shape {
	if s.Version == "" {
		s.Version = kernel.V2
	}
	if s.Driver == "" {
		s.Driver = kernel.Systemd
	}
	if s.Runtime == "" {
		s.Runtime = "cri-containerd"
	}
	return s
}

// QoS is the directory of a pod's QoS class.
type QoS string

// The QoS classes. Guaranteed pods lie directly below kubepods.
const (
	Guaranteed QoS = ""
	Burstable  QoS = "burstable"
	BestEffort QoS = "besteffort"
)

// Kubepods is the path of the cgroup above all pods.
func (s Shape) Kubepods() string { return s.join("kubepods") }

// Pod is the path of a pod's cgroup.
func (s Shape) Pod(qos QoS, uid string) string {
	if qos == Guaranteed {
		return s.join("kubepods", "pod"+uid)
	}
	return s.join("kubepods", string(qos), "pod"+uid)
}

// Container is the path of a container's cgroup.
func (s Shape) Container(qos QoS, uid, id string) string {
	s = s.withDefaults()
	name := id
	switch {
	case s.Driver == kernel.Systemd:
		name = s.Runtime + "-" + id + ".scope"
	case s.Runtime == "crio":
		name = "crio-" + id
	}
	return path.Join(s.Pod(qos, uid), name)
}

// join is pkg/kubelet/cm/cgroup_manager_linux.go CgroupName.ToSystemd and ToCgroupfs.
func (s Shape) join(parts ...string) string {
	s = s.withDefaults()
	if s.Root != "" {
		parts = append([]string{s.Root}, parts...)
	}
	if s.Driver == kernel.Cgroupfs {
		return path.Join(s.Above, path.Join(parts...))
	}
	out, name := s.Above, ""
	for i, part := range parts {
		if i > 0 {
			name += "-"
		}
		name += strings.ReplaceAll(part, "-", "_")
		out = path.Join(out, name+".slice")
	}
	return out
}
