//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Host reads the counters of one machine. It keeps the files of every target open from one Read to
// the next. Its methods may be called from several goroutines.
type Host struct {
	cfg    Config
	log    *slog.Logger
	now    func() time.Time
	layout atomic.Pointer[Layout]
	hint   atomic.Bool // a watch had an event: list again

	watching sync.WaitGroup // one for each Watch

	mu             sync.Mutex // guards what follows
	closed         bool
	watches        []*os.File
	tree           tree
	reader         reader
	psiUnsupported bool // EOPNOTSUPP was returned: never read again
	proc           procFiles
	root           *group // the kubepods cgroup; nil while it does not exist
	kubepods       string // its path
	pods           map[string]*pod
	reads          uint64 // counts Reads; targets not in the last one are closed
	batch          batch
	worker         *worker
	done           chan struct{}   // the worker has read the last target
	check          *time.Timer     // whether the worker goes on
	blocked        map[string]*pod // they belong to the workers that read them

	index       map[string]string // podKey -> directory
	indexedAt   time.Time
	recheckedAt time.Time         // apart from indexedAt, as a node with much pod churn lists all the time
	tracked     int               // pods so far
	usage, idle Total             // of the CPUs in the last Read
	busy        bool              // see Config.PressureFrom
	listed      bool              // in this Read
	displaced   map[string]string // container ID -> directory outside of its pod's
	scannedAt   time.Time
	searchedAt  time.Time // for the kubepods cgroup
	faultLogged map[string]time.Time
}

// Open detects the layout of this machine's cgroups. It fails where there is no CPU controller or
// no kubepods cgroup, or where there are several of these and nothing identifies the right one.
func Open(cfg Config) (*Host, error) {
	cfg = cfg.withDefaults()
	t, err := detect(cfg.Root)
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, log: cfg.Log, now: cfg.Now, tree: t, done: make(chan struct{}, 1), blocked: make(map[string]*pod),
		pods: make(map[string]*pod), displaced: make(map[string]string), faultLogged: make(map[string]time.Time),
	}
	h.reader.pread = unix.Pread
	h.check = time.NewTimer(blockedTick)
	h.worker = h.newWorker(0)
	if err := h.findRoot(); err != nil {
		return nil, err
	}
	h.proc = openProc(cfg.Proc)
	l := h.Layout()
	h.log.Info("cgroup layout", "version", l.Version, "driver", l.Driver, "kubepods", l.Kubepods, "anchor", l.ChosenBy,
		"psi", l.PSI)
	if cfg.MemoryIOPressure && !l.PSI {
		h.log.Warn("this kernel's cgroups have no pressure, so memory and IO pressure are unknown; " +
			"boot the node with psi=1 and cgroup v2")
	}
	if cfg.OwnPod != "" && l.ChosenBy != ByOwnPod {
		h.log.Warn("own pod has no cgroup", "pod", cfg.OwnPod, "kubepods", l.Kubepods)
	}
	return h, nil
}

// Layout is the detected layout; it changes only if the kubepods cgroup moves.
func (h *Host) Layout() Layout { return *h.layout.Load() }

// Close closes every file and ends every Watch. A Read after Close finds nothing.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	h.closeUnused(^uint64(0)) // no Read has this number
	h.closeRoot()
	h.proc.close()
	for _, f := range h.watches {
		f.Close()
	}
	h.watches = nil
	h.mu.Unlock()
	h.watching.Wait()
	return nil
}

// Descriptors is the number of open files: up to 6 for each container (v2: 4) and 4 for each pod (v2: 3),
// and with Config.MemoryIOPressure 2 more for each container. A full node needs more than the usual soft
// limit of 1024; the Go runtime raises that to the hard limit at start.
func (h *Host) Descriptors() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := countOpen(h.proc.stat, h.proc.pressure, h.proc.uptime)
	if h.root != nil {
		n += countOpen(h.root.fd[:]...)
	}
	open := func(m *member) {
		if m.group != nil {
			n += countOpen(m.group.fd[:]...)
		}
	}
	for _, p := range h.pods {
		open(&p.own)
		for _, m := range p.containers {
			open(m)
		}
	}
	return n
}

// findRoot chooses the kubepods cgroup and opens it.
func (h *Host) findRoot() error {
	h.searchedAt = h.now()
	k, choice, err := findKubepods(h.tree.cpu, h.cfg.OwnPod)
	if err != nil {
		return err
	}
	g, err := h.tree.open(k.path, true, cpuPressure)
	if err != nil {
		return fmt.Errorf("kubepods cgroup: %w", err)
	}
	_, why, err := g.pressure(h.tree, &h.reader, pressureFile)
	psi := g.fd[pressureFile] >= 0 && why == pressureRead && err == nil
	if why == pressureUnsupported {
		h.psiUnsupported = true
	}
	h.closeRoot()
	h.root, h.kubepods = g, k.path
	h.layout.Store(&Layout{
		Version: h.tree.version, Driver: k.driver, ChosenBy: choice, PSI: psi,
		Kubepods: filepath.Join(h.tree.cpu, k.path),
	})
	h.indexedAt = time.Time{}
	return nil
}

func (h *Host) closeRoot() {
	if h.root != nil {
		h.root.close()
		h.root = nil
	}
}

// node reads the machine's totals. Unreadable totals are unknown.
func (h *Host) node() NodeSample {
	var n NodeSample
	var err error
	n.At, n.Idle = h.now(), h.proc.idle(&h.reader)
	if n.Usage, n.Pressure, err = h.proc.read(&h.reader); err != nil {
		h.logFault("node", err)
	}
	h.noteBusy(n.Usage, n.Idle)
	if h.root == nil {
		h.reopenRoot()
	}
	if h.root == nil {
		return n
	}
	s, at, err := h.root.stat(h.tree, &h.reader, h.now)
	if err != nil {
		h.closeRoot() // found again by the next Read
		if !gone(err) {
			h.logFault("kubepods", err)
		}
		return n
	}
	n.At, n.Kubepods = at, KnownTotal(s.Usage)
	return n
}

// reopenRoot opens a kubepods cgroup that was removed and created again in its place or, by a
// kubelet with another driver, elsewhere. Searching for it is expensive, so it has an interval.
func (h *Host) reopenRoot() {
	if g, err := h.tree.open(h.kubepods, true, cpuPressure); err == nil {
		h.root = g
		return
	}
	if h.now().Sub(h.searchedAt) < listInterval {
		return
	}
	if err := h.findRoot(); err != nil {
		h.logFault("kubepods", err)
		return
	}
	h.log.Info("cgroup layout changed", "layout", h.Layout())
}

// logFault logs a fault, each kind at most once a minute.
func (h *Host) logFault(kind string, err error) {
	now := h.now()
	if last, ok := h.faultLogged[kind]; ok && now.Sub(last) < time.Minute {
		return
	}
	h.faultLogged[kind] = now
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		h.log.Error("out of file descriptors; raise LimitNOFILE", "err", err)
		return
	}
	h.log.Warn("cgroup not readable", "kind", kind, "err", err)
}
