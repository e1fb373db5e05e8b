//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel/cgroupname"
)

// tree is where the parts of a cgroup are. On v2 the three are the same directory.
type tree struct {
	version Version
	cpu     string // quota and throttling
	acct    string // usage
	psi     string // pressure; empty where there is none
}

// detect finds the hierarchies that are mounted at root.
func detect(root string) (tree, error) {
	if _, err := os.ReadDir(root); err != nil {
		return tree{}, fmt.Errorf("cgroup root: %w; mount the host's /sys/fs/cgroup there, read-only", err)
	}
	if isCgroup2(root) {
		return detectV2(root)
	}
	cpu := firstDir(root, "cpu,cpuacct", "cpuacct,cpu", "cpu")
	acct := firstDir(root, "cpu,cpuacct", "cpuacct,cpu", "cpuacct")
	unified := filepath.Join(root, "unified")
	switch {
	case cpu != "" && acct != "" && isCgroup2(unified):
		return tree{Hybrid, cpu, acct, unified}, nil
	case cpu != "" && acct != "":
		return tree{V1, cpu, acct, ""}, nil
	case isCgroup2(unified): // hybrid, but CPU is controlled by v2
		return detectV2(unified)
	}
	return tree{}, fmt.Errorf("cgroup root %s: neither cgroup v2 (cgroup.controllers) nor v1 (cpu,cpuacct or cpu and "+
		"cpuacct) is there; mount the host's /sys/fs/cgroup there, read-only", root)
}

func detectV2(root string) (tree, error) {
	path := filepath.Join(root, "cgroup.controllers")
	controllers, err := os.ReadFile(path)
	if err != nil {
		return tree{}, fmt.Errorf("cgroup v2: %w", err)
	}
	if !slices.Contains(strings.Fields(string(controllers)), "cpu") {
		return tree{}, fmt.Errorf("%s: no cpu controller among %q; enable it on the host (kernel parameter "+
			"cgroup_disable, systemd Delegate=) or move it off cgroup v1", path, strings.TrimSpace(string(controllers)))
	}
	return tree{V2, root, root, root}, nil
}

// isCgroup2 goes by the magic number of the file system where it is a cgroup's; on any other file
// system (a recorded tree in a temporary directory) the presence of cgroup.controllers decides.
func isCgroup2(dir string) bool {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false
	}
	switch int64(fs.Type) {
	case unix.CGROUP2_SUPER_MAGIC:
		return true
	case unix.CGROUP_SUPER_MAGIC:
		return false
	}
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

// firstDir is the first of names that is a directory (or a link to one) in root, or "".
func firstDir(root string, names ...string) string {
	for _, name := range names {
		path := filepath.Join(root, name)
		if fi, err := os.Stat(path); err == nil && fi.IsDir() {
			return path
		}
	}
	return ""
}

// kubepods is a cgroup that may be the one above all pods of the kubelet.
type kubepods struct {
	path   string // below the hierarchy's root
	driver Driver
	depth  int
	pods   int
	own    bool // it has the agent's own pod
}

// findKubepods chooses the kubepods cgroup below base. The first search excludes containers and
// services; the second includes them, for a kubelet that runs in a container and is seen from
// outside of it.
func findKubepods(base, ownPod string) (kubepods, Choice, error) {
	var candidates []kubepods
	for _, everywhere := range []bool{false, true} {
		found := searchTree(base, ownPod, everywhere)
		if i := slices.IndexFunc(found, func(k kubepods) bool { return k.own }); i >= 0 {
			return found[i], ByOwnPod, nil
		}
		if len(candidates) == 0 {
			candidates = found
		}
		if ownPod == "" && len(found) > 0 {
			break
		}
	}
	return choose(base, ownPod, candidates)
}

// choose returns a candidate only where no other is as likely.
func choose(base, ownPod string, all []kubepods) (kubepods, Choice, error) {
	if len(all) == 0 {
		return kubepods{}, "", fmt.Errorf("no kubepods, kubepods.slice or *-kubepods.slice below %s: "+
			"check that the host's whole cgroup tree is mounted there, and that the kubelet runs with cgroupsPerQOS", base)
	}
	if len(all) == 1 {
		return all[0], ByName, nil
	}
	used := slices.DeleteFunc(slices.Clone(all), func(k kubepods) bool { return k.pods == 0 })
	if len(used) == 1 {
		return used[0], ByPods, nil
	}
	if len(used) > 1 && used[0].depth < used[1].depth { // in order of depth
		return used[0], ByShallower, nil
	}
	var paths []string
	for _, k := range all {
		paths = append(paths, k.path)
	}
	found := fmt.Sprintf("%d kubepods cgroups below %s (%s)", len(all), base, strings.Join(paths, ", "))
	if ownPod == "" {
		return kubepods{}, "", errors.New(found +
			" and nothing identifies the one of this node: pass the own pod's UID (downward API, metadata.uid)")
	}
	return kubepods{}, "", fmt.Errorf("%s and none has pod %s: check the own pod's UID (downward API, metadata.uid)",
		found, ownPod)
}

// The search ends at this depth and after this many directories, so that an unexpected tree costs a
// bounded time.
const (
	shallowDepth = 6
	deepDepth    = 14
	maxDirs      = 50_000
)

// searchTree is breadth first, so its result is in order of depth.
func searchTree(base, ownPod string, everywhere bool) []kubepods {
	var found []kubepods
	limit := shallowDepth
	if everywhere {
		limit = deepDepth
	}
	walk(base, limit, func(path, name string, depth int) (descend bool) {
		driver, ok := isKubepods(name)
		if !ok {
			return everywhere || !cgroupname.IsContainerOrService(name)
		}
		pods, err := listPods(base, path)
		if err != nil {
			return false // removed meanwhile
		}
		_, own := pods[cgroupname.PodKey(ownPod)]
		found = append(found, kubepods{path, driver, depth, len(pods), own && ownPod != ""})
		return everywhere
	})
	return found
}

// walk calls see for every directory below base, breadth first and in order of names.
func walk(base string, maxDepth int, see func(path, name string, depth int) (descend bool)) {
	type dir struct {
		path  string
		depth int
	}
	queue := []dir{{"", 0}}
	for seen := 0; len(queue) > 0 && seen < maxDirs; queue = queue[1:] {
		at := queue[0]
		names, err := subdirs(filepath.Join(base, at.path))
		if err != nil {
			continue // removed meanwhile, or not readable
		}
		for _, name := range names {
			path := filepath.Join(at.path, name)
			if seen++; see(path, name, at.depth+1) && at.depth+1 < maxDepth {
				queue = append(queue, dir{path, at.depth + 1})
			}
		}
	}
}

// listPods is the directory of every pod below the kubepods cgroup at path, by podKey.
func listPods(base, path string) (map[string]string, error) {
	names, err := subdirs(filepath.Join(base, path))
	if err != nil {
		return nil, err
	}
	pods := make(map[string]string)
	for _, name := range names {
		if key, ok := cgroupname.PodOf(name); ok {
			pods[key] = filepath.Join(path, name)
		}
		if cgroupname.IsQoS(name) {
			inner, _ := listPods(base, filepath.Join(path, name)) // removed meanwhile: none
			maps.Copy(pods, inner)
		}
	}
	return pods, nil
}

// subdirs names the directories in dir, in order.
func subdirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// isKubepods says that a directory may be the one above all pods, and which
// driver names it so.
func isKubepods(name string) (Driver, bool) {
	switch {
	case name == "kubepods":
		return Cgroupfs, true
	case name == "kubepods.slice", strings.HasSuffix(name, "-kubepods.slice"):
		return Systemd, true
	}
	return "", false
}
