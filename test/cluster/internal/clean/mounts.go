package clean

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Point   string
	Type    string
	Options []string // of the filesystem: for cgroup v1 these name the controllers
}

// Mounts lists what is mounted for this process, in the order of mounting.
func Mounts() ([]Mount, error) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(raw))
}

func parseMounts(text string) ([]Mount, error) {
	var mounts []Mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 3 {
			return nil, fmt.Errorf("mountinfo: cannot read line %q", line)
		}
		mounts = append(mounts, Mount{Point: unescape.Replace(l[4]), Type: r[0], Options: strings.Split(r[2], ",")})
	}
	return mounts, nil
}

// unescape undoes the kernel's octal escapes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// within says whether path is dir or below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// below lists the mount points in dir, dir's own left out, last mounted first:
// the order in which they can be unmounted.
func below(mounts []Mount, dir string) []string {
	var points []string
	for _, m := range mounts {
		if m.Point != dir && within(dir, m.Point) {
			points = append(points, m.Point)
		}
	}
	slices.Reverse(points)
	return points
}

// FilesystemOf is the type of the filesystem that holds path.
func FilesystemOf(mounts []Mount, path string) string {
	best := Mount{}
	for _, m := range mounts {
		if within(m.Point, path) && len(m.Point) >= len(best.Point) {
			best = m
		}
	}
	return best.Type
}

// cgroupsIn lists the places of a cgroup in every hierarchy.
func cgroupsIn(mounts []Mount, name string) []string {
	var dirs []string
	for _, m := range mounts {
		if m.Type == "cgroup" || m.Type == "cgroup2" {
			dirs = append(dirs, filepath.Join(m.Point, name))
		}
	}
	return dirs
}

// LocalNodes is the cgroup above those of all nodes that were added to the first of the machine.
const LocalNodes = "mbcas-nodes"

// Kubepods lists the pod cgroups that exist, of all nodes and in each hierarchy.
func Kubepods() ([]string, error) { return existing("kubepods", LocalNodes) }

// existing lists which of the cgroups are there, in each hierarchy.
func existing(names ...string) ([]string, error) {
	mounts, err := Mounts()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, name := range names {
		dirs = append(dirs, cgroupsIn(mounts, name)...)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := os.Stat(dir)
		return err != nil
	}), nil
}
