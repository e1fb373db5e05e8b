package node

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"

	"github.com/mbcas/mbcas/test/cluster/internal/config"
	"github.com/mbcas/mbcas/test/cluster/internal/must"
)

func TestCgroupMode(t *testing.T) {
	v1 := func(options string) *mountinfo.Info { return &mountinfo.Info{FSType: "cgroup", VFSOptions: options} }
	v2 := &mountinfo.Info{FSType: "cgroup2"}
	tests := map[string]struct {
		mounts []*mountinfo.Info
		want   CgroupMode
		reason string
	}{
		"v2":              {[]*mountinfo.Info{v2}, V2, ""},
		"v1":              {[]*mountinfo.Info{v1("rw,cpu,cpuacct"), v1("rw,memory")}, V1, ""},
		"hybrid":          {[]*mountinfo.Info{v1("rw,cpu"), v1("rw,memory"), v2}, Hybrid, ""},
		"v2 and systemd":  {[]*mountinfo.Info{v1("rw,name=systemd"), v2}, V2, "a named hierarchy has no controller"},
		"cpuacct, no cpu": {[]*mountinfo.Info{v1("rw,cpuacct")}, "", "nothing can limit the CPU of a pod"},
		"none":            {nil, "", ""},
	}
	for name, tt := range tests {
		if got := cgroupMode(tt.mounts); got != tt.want {
			t.Errorf("%s: %q, want %q; %s", name, got, tt.want, tt.reason)
		}
	}
}

func TestOverlays(t *testing.T) {
	mounts := []*mountinfo.Info{
		{Mountpoint: "/", FSType: "ext4"},
		{Mountpoint: "/tmp", FSType: "tmpfs"},
		{Mountpoint: "/var/lib/xy", FSType: "overlay"},
	}
	tests := map[string]bool{"/var/lib/x": true, "/tmp/state": false, "/tmpx": true, "/var/lib/xy/z": false}
	for path, want := range tests {
		if got := overlays(mounts, path); got != want {
			t.Errorf("overlay layers in %s: %v, want %v", path, got, want)
		}
	}
}

// The differences between the kinds of nodes.
func TestKindsOfNodes(t *testing.T) {
	c := config.Default("/var/lib/x")
	c.SystemReservedCPU = "250m"
	type kind struct {
		Address, CgroupRoot  string
		HealthzPort, MaxPods int
		SystemReserved       map[string]string
		RegisterWithTaints   []map[string]string
		FailCgroupV1         *bool
		Labels, RootDir      string `json:"-"`
	}
	reserved := func(cpu string) map[string]string { return map[string]string{"cpu": cpu, "memory": "1Gi"} }
	for _, tt := range []struct {
		n       config.Node
		cgroups CgroupMode
		want    kind
	}{
		{c.First(), Hybrid, kind{
			Address: "10.244.0.1", HealthzPort: 10248, MaxPods: 110, SystemReserved: reserved("250m"),
			FailCgroupV1: new(bool), RootDir: "--root-dir=/var/lib/x/kubelet",
		}},
		{config.Node{Name: "mbcas-node-2", Index: 1, SystemReservedCPU: "1300m"}, V1, kind{
			Address: "10.244.0.128", CgroupRoot: "/mbcas-nodes/mbcas-node-2", HealthzPort: 10247, MaxPods: 63,
			SystemReserved: reserved("1300m"), FailCgroupV1: new(bool),
			RootDir: "--root-dir=/var/lib/x/nodes/mbcas-node-2/kubelet",
		}},
		{config.Node{Name: "mbcas-vm-2", Index: 2, SystemReservedCPU: "400m", VM: &config.VM{}}, V2, kind{
			Address: "10.244.0.192", HealthzPort: 10246, MaxPods: 62, SystemReserved: reserved("400m"),
			RegisterWithTaints: []map[string]string{{"key": Virtual, "value": "true", "effect": "NoSchedule"}},
			Labels:             "--node-labels=" + Virtual + "=true",
			RootDir:            "--root-dir=/var/lib/mbcas-cluster/kubelet",
		}},
	} {
		in := c.Inside(tt.n)
		raw, err := kubeletConfig(in, tt.n, Host{Cgroups: tt.cgroups})
		must.Succeed(t, err)
		var got kind
		must.Succeed(t, json.Unmarshal(raw, &got))
		for _, arg := range KubeletArgs(in, tt.n) {
			switch name, _, _ := strings.Cut(arg, "="); name {
			case "--node-labels":
				got.Labels = arg
			case "--root-dir":
				got.RootDir = arg
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.n.Name, d)
		}
	}
}

func TestRenderedPathsStayInState(t *testing.T) {
	c := config.Default("/var/lib/x")
	h := Host{Cgroups: Hybrid, CNI: "/usr/lib/cni", Overlay: true}
	for _, n := range []config.Node{c.First(), {Name: "mbcas-node-2", Index: 1, SystemReservedCPU: "1"}} {
		in := c.Inside(n)
		files, err := Files(in, n, h)
		must.Succeed(t, err)
		_, kubelet := Programs(c, n, h, func(string) string { return "kubelet" })
		files["flags"] = []byte(strings.Join(kubelet.Args, "\n"))
		path := regexp.MustCompile(`(?:["=]|unix://|: )(/[^"\n]*)`)
		for name, text := range files {
			for _, m := range path.FindAllStringSubmatch(string(text), -1) {
				if p := m[1]; !strings.HasPrefix(p, in.State+"/") && p != h.CNI && p != "/"+n.Cgroup() {
					t.Errorf("%s of %s: %s is outside the state folder", name, n.Name, p)
				}
			}
		}
	}
}

func TestContainerdConfigBySnapshotter(t *testing.T) {
	c := config.Default("/var/lib/x")
	for overlay, want := range map[bool]string{true: `snapshotter = "overlayfs"`, false: `snapshotter = "native"`} {
		if got := containerdConfig(c, Host{Overlay: overlay}); !strings.Contains(got, want) {
			t.Errorf("overlay %v: no %s", overlay, want)
		}
	}
}
