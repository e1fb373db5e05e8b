// Package cgroupname reads the names of cgroups, as the kubelet (pkg/kubelet/cm/cgroup_manager_linux.go) and
// the runtimes write them.
package cgroupname

import "strings"

// PodKey is the form of pod UIDs for comparison: the systemd driver writes
// "_" for "-", and the config hash of a static pod has neither.
func PodKey(uid string) string { return podKeys.Replace(uid) }

var podKeys = strings.NewReplacer("-", "", "_", "")

// PodOf is the key of the pod that a directory's name belongs to:
// "pod<uid>", "kubepods-pod<uid>.slice", "x-kubepods-burstable-pod<uid>.slice".
func PodOf(name string) (key string, ok bool) {
	name = strings.TrimSuffix(name, ".slice")
	i := strings.LastIndex(name, "-pod")
	switch {
	case strings.HasPrefix(name, "pod"):
		name = name[len("pod"):]
	case i >= 0:
		name = name[i+len("-pod"):]
	default:
		return "", false
	}
	return PodKey(name), name != ""
}

// ContainerOf is the container ID in a directory's name: "<id>", "crio-<id>",
// "cri-containerd-<id>.scope", and "...slice:cri-containerd:<id>" where the
// kubelet and the runtime use different drivers. The result may be no ID: it
// counts only if it equals a known one. The cgroup of a container's monitor
// process has the same ID and is excluded.
func ContainerOf(name string) (id string, ok bool) {
	if strings.Contains(name, "conmon") {
		return "", false
	}
	name = strings.TrimSuffix(name, ".scope")
	return name[strings.LastIndexAny(name, "-:")+1:], true
}

// IsQoS says that a directory below kubepods has the pods of one QoS class.
func IsQoS(name string) bool {
	return name == "burstable" || name == "besteffort" ||
		strings.HasSuffix(name, "-burstable.slice") || strings.HasSuffix(name, "-besteffort.slice")
}

// IsContainerOrService says that no kubelet has its pods below a directory, unless the kubelet
// itself runs in there.
func IsContainerOrService(name string) bool {
	for _, suffix := range []string{".scope", ".mount", ".service", ".socket", ".swap"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	id, ok := ContainerOf(name)
	return !ok || isHex64(id)
}

func isHex64(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
