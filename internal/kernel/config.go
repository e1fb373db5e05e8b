package kernel

import (
	"cmp"
	"log/slog"
	"time"
)

// Config is where the kernel's files are. The zero value reads this machine.
type Config struct {
	// Root is the cgroup mount: the host's /sys/fs/cgroup, wherever it is mounted
	// here. Empty: /sys/fs/cgroup.
	Root string
	// Proc is where the machine's stat and pressure/cpu are. Empty: /proc.
	Proc string
	// OwnPod is the UID of the pod that this process runs in. It identifies the kubepods cgroup
	// where several clusters share a machine. Empty: it is identified by name alone.
	OwnPod string
	// MemoryIOPressure has the memory and IO pressure of every container read, where the kernel has
	// it: two more files of each are held open and read. Without it they are not opened.
	MemoryIOPressure bool
	// PressureFrom is the share of the CPUs that are busy from which the CPU pressure of the containers
	// is read in each Read; below, it is read at FullReadInterval. 0: in each Read.
	PressureFrom float64
	// Now is the clock of samples and retries. Nil: time.Now.
	Now func() time.Time
	// Log receives the layout once, and faults at most once a minute for each kind.
	// Nil: slog.Default.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Root, c.Proc = cmp.Or(c.Root, "/sys/fs/cgroup"), cmp.Or(c.Proc, "/proc")
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Version is the generation of the cgroup interface that controls CPU.
type Version string

const (
	V1     Version = "v1"     // cpu and cpuacct hierarchies, no pressure
	V2     Version = "v2"     // one unified hierarchy
	Hybrid Version = "hybrid" // CPU on v1; a v2 hierarchy beside it has the pressure
)

// Driver is the cgroup driver of the kubelet, which names the cgroups of pods.
type Driver string

const (
	Systemd  Driver = "systemd"  // kubepods.slice/kubepods-burstable.slice/...
	Cgroupfs Driver = "cgroupfs" // kubepods/burstable/...
)

// Choice is how the kubepods cgroup was chosen, from certain to likely.
type Choice string

const (
	ByOwnPod    Choice = "own pod"         // it holds Config.OwnPod
	ByName      Choice = "only one"        // no other kubepods cgroup is there
	ByPods      Choice = "only one in use" // the others hold no pods
	ByShallower Choice = "topmost"         // the others are deeper, so inside a container
)

// Layout is the result of Open.
type Layout struct {
	Version  Version
	Driver   Driver
	Kubepods string // path of the kubepods cgroup; on v1 and hybrid in the cpu hierarchy
	PSI      bool   // the kubepods cgroup reports CPU pressure
	ChosenBy Choice
}
