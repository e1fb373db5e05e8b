//go:build linux

package weights

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mbcas/mbcas/internal/kernel/cgroupname"
	"github.com/mbcas/mbcas/internal/weights/wire"
)

// beneath keeps every name below the directory that it is looked up in: no "..", no absolute path, no symbolic link,
// no other file system.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// Files of a pod's cgroup.
const (
	idleFile   = "cpu.idle"
	weightFile = "cpu.weight" // cgroup v2
	sharesFile = "cpu.shares" // cgroup v1
)

// Bounds of cpu.shares, as the kernel and the kubelet have them.
const minShares, maxShares = 2, 262144

// Weights that a cgroup has when it is made or leaves the idle class.
const defaultWeight, defaultShares = 100, 1024

// Tree is the kubepods cgroup of a node. Everything it opens lies below it.
type Tree struct {
	root   *os.File
	weight string // weightFile or sharesFile
	idle   bool   // the kernel has cpu.idle
	// refuse is the kernel's refusal of a value of a file of a pod, in tests; nil: none.
	refuse func(pod, file string) error
}

// OpenTree opens the kubepods cgroup that is mounted at path.
func OpenTree(path string) (*Tree, error) {
	root, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("kubepods cgroup: %w; mount the node's kubepods cgroup there", err)
	}
	t := &Tree{root: root}
	for _, name := range []string{weightFile, sharesFile} {
		f, err := t.open(t.root, name, unix.O_RDONLY)
		if errors.Is(err, unix.ENOSYS) {
			_ = root.Close() // it was only opened
			return nil, fmt.Errorf("kubepods cgroup %s: openat2: %w; the kernel has to be 5.6 or later, and the seccomp "+
				"profile has to allow the call", path, err)
		}
		if err == nil {
			_ = f.Close() // it was only opened
			t.weight = name
			break
		}
	}
	if t.weight == "" {
		_ = root.Close() // it was only opened
		return nil, fmt.Errorf("kubepods cgroup %s: neither %s nor %s is there; mount the kubepods cgroup of the cpu "+
			"controller", path, weightFile, sharesFile)
	}
	if f, err := t.open(t.root, idleFile, unix.O_RDONLY); err == nil {
		t.idle = true
		_ = f.Close() // it was only opened
	}
	return t, nil
}

// Close closes the tree.
func (t *Tree) Close() error { return t.root.Close() }

func (t *Tree) open(dir *os.File, name string, flags int) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: beneath}
	fd, err := unix.Openat2(int(dir.Fd()), name, &how)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir.Name() + "/" + name, Err: err}
	}
	return os.NewFile(uintptr(fd), dir.Name()+"/"+name), nil
}

// validUID says that a UID has the form that the API server gives. The hash of a static pod has another.
func validUID(uid string) bool {
	if len(uid) != 36 {
		return false
	}
	for i, c := range []byte(uid) {
		switch dash := i == 8 || i == 13 || i == 18 || i == 23; {
		case dash && c != '-', !dash && !strings.ContainsRune("0123456789abcdef", rune(c)):
			return false
		}
	}
	return true
}

// errNoPod: the tree has no such pod in a class that may be written.
var errNoPod = errors.New("no pod of this UID is in the Burstable or BestEffort class")

// pod opens the cgroup of a pod. Guaranteed pods lie directly below kubepods, where it never looks.
func (t *Tree) pod(uid string) (*os.File, error) {
	if !validUID(uid) {
		return nil, errNoPod
	}
	if _, err := t.root.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("list %s: %w", t.root.Name(), err)
	}
	names, err := t.root.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", t.root.Name(), err)
	}
	for _, qos := range names {
		if !cgroupname.IsQoS(qos) {
			continue
		}
		name := qos + "/pod" + uid
		if prefix, systemd := strings.CutSuffix(qos, ".slice"); systemd {
			name = qos + "/" + prefix + "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
		}
		dir, err := t.open(t.root, name, unix.O_DIRECTORY)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return dir, err
		}
	}
	return nil, errNoPod
}

// values are those of one cgroup, as its files have them.
type values struct {
	Idle   bool   `json:"idle,omitempty"`
	Weight uint64 `json:"weight"` // of cpu.weight or cpu.shares; it does not count while Idle
}

// valid says that the kernel may have had these values.
func (v values) valid() bool { return v.Idle || v.Weight >= 1 && v.Weight <= maxShares }

func (t *Tree) read(dir *os.File) (v values, err error) {
	if t.idle {
		n, err := t.number(dir, idleFile)
		if err != nil {
			return values{}, err
		}
		v.Idle = n != 0
	}
	if v.Idle {
		return v, nil
	}
	v.Weight, err = t.number(dir, t.weight)
	return v, err
}

// write changes the cgroup to v where it has other values. The kernel refuses a weight of an idle cgroup.
func (t *Tree) write(dir *os.File, v values) error {
	now, err := t.read(dir)
	if err != nil || now == v {
		return err
	}
	if t.idle && now.Idle != v.Idle {
		if err := t.set(dir, idleFile, map[bool]uint64{true: 1}[v.Idle]); err != nil {
			return err
		}
	}
	if v.Idle {
		return nil
	}
	return t.set(dir, t.weight, v.Weight)
}

func (t *Tree) number(dir *os.File, name string) (uint64, error) {
	f, err := t.open(dir, name, unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var text [32]byte
	n, err := f.Read(text[:])
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(text[:n])), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return v, nil
}

func (t *Tree) set(dir *os.File, name string, v uint64) error {
	if t.refuse != nil {
		if err := t.refuse(dir.Name(), name); err != nil {
			return fmt.Errorf("write %d to %s/%s: %w", v, dir.Name(), name, err)
		}
	}
	f, err := t.open(dir, name, unix.O_WRONLY|unix.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.FormatUint(v, 10) + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %d to %s: %w", v, f.Name(), err)
	}
	return nil
}

// target is what a setting is in this tree: without cpu.idle, the idle class is the least weight. Several cpu.shares are
// one cpu.weight, so where that of the original is asked for, the original stays.
func (t *Tree) target(s wire.Setting, original values) values {
	switch {
	case s.Idle && t.idle:
		return values{Idle: true}
	case s.Idle && t.weight == weightFile:
		return values{Weight: wire.MinWeight}
	case s.Idle:
		return values{Weight: minShares}
	case t.weight == weightFile:
		return values{Weight: s.Weight}
	case !original.Idle && original.Weight >= minShares && weightOf(original.Weight) == s.Weight:
		return original
	}
	return values{Weight: sharesOf(s.Weight)}
}

// weightOf is the cpu.weight that the kubelet has for cpu.shares.
func weightOf(shares uint64) uint64 {
	return wire.MinWeight + (shares-minShares)*(wire.MaxWeight-wire.MinWeight)/(maxShares-minShares)
}

// sharesOf is the cpu.shares of a cpu.weight, by the formula that the kubelet has for the other direction.
func sharesOf(weight uint64) uint64 {
	const weights, shares = wire.MaxWeight - wire.MinWeight, maxShares - minShares
	return minShares + ((weight-wire.MinWeight)*shares+weights/2)/weights
}

// atDefault says that values are those of a cgroup that has just left the idle class.
func (t *Tree) atDefault(v values) bool {
	return !v.Idle && (t.weight == weightFile && v.Weight == defaultWeight ||
		t.weight == sharesFile && v.Weight == defaultShares)
}
