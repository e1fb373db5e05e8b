package node

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/cluster/internal/clean"
	"github.com/mbcas/mbcas/test/cluster/internal/config"
)

func TestCgroupMode(t *testing.T) {
	v1 := func(controllers ...string) clean.Mount { return clean.Mount{Type: "cgroup", Options: controllers} }
	v2 := clean.Mount{Type: "cgroup2"}
	tests := map[string]struct {
		mounts []clean.Mount
		want   CgroupMode
		reason string
	}{
		"v2":              {[]clean.Mount{v2}, V2, ""},
		"v1":              {[]clean.Mount{v1("rw", "cpu", "cpuacct"), v1("rw", "memory")}, V1, ""},
		"hybrid":          {[]clean.Mount{v1("rw", "cpu"), v1("rw", "memory"), v2}, Hybrid, ""},
		"v2 and systemd":  {[]clean.Mount{v1("rw", "name=systemd"), v2}, V2, "a named hierarchy has no controller"},
		"cpuacct, no cpu": {[]clean.Mount{v1("rw", "cpuacct")}, "", "nothing can limit the CPU of a pod"},
		"none":            {nil, "", ""},
	}
	for name, tt := range tests {
		if got := cgroupMode(tt.mounts); got != tt.want {
			t.Errorf("%s: %q, want %q; %s", name, got, tt.want, tt.reason)
		}
	}
}

func TestKubeletConfigByCgroupMode(t *testing.T) {
	c := config.Default("/var/lib/x", true)
	for mode, want := range map[CgroupMode]bool{V1: true, Hybrid: true, V2: false} {
		raw, err := kubeletConfig(c, c.HostSlot(), Host{Cgroups: mode})
		if err != nil {
			t.Fatal(err)
		}
		var k map[string]any
		if err := json.Unmarshal(raw, &k); err != nil {
			t.Fatal(err)
		}
		if _, got := k["failCgroupV1"]; got != want {
			t.Errorf("%s: failCgroupV1 given: %v, want %v", mode, got, want)
		}
	}
}

func TestKubeletConfig(t *testing.T) {
	c := config.Default("/var/lib/x", true)
	c.SystemReservedCPU = "250m"
	raw, err := kubeletConfig(c, c.HostSlot(), Host{Cgroups: V2})
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		Address                string
		MaxPods                int
		ReadOnlyPort           int
		CgroupDriver           string
		MakeIPTablesUtilChains bool
		SystemReserved         map[string]string
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		t.Fatal(err)
	}
	if k.Address != "10.244.0.1" || k.MaxPods != 110 || k.ReadOnlyPort != 0 || k.CgroupDriver != "cgroupfs" || k.MakeIPTablesUtilChains {
		t.Errorf("kubelet configuration: %+v", k)
	}
	if k.SystemReserved["cpu"] != "250m" || k.SystemReserved["memory"] != "1Gi" {
		t.Errorf("system reserve: %v", k.SystemReserved)
	}
}

// The differences between the kinds of nodes.
func TestKindsOfNodes(t *testing.T) {
	c := config.Default("/var/lib/x", true)
	beside := LocalNode{Name: "mbcas-node-2", Index: 1, SystemReservedCPU: "1300m"}
	emulated := c.Slot(2, "mbcas-vm-2")
	emulated.Emulated = true
	type kind struct {
		Address, CgroupRoot string
		HealthzPort         int
		SystemReserved      map[string]string
		RegisterWithTaints  []map[string]string
		Labels, RootDir     string `json:"-"`
	}
	reserved := func(cpu string) map[string]string { return map[string]string{"cpu": cpu, "memory": "1Gi"} }
	for _, tt := range []struct {
		c    config.Config
		s    config.Slot
		want kind
	}{
		{c, c.HostSlot(), kind{Address: "10.244.0.1", HealthzPort: 10248, SystemReserved: reserved("400m"), RootDir: "--root-dir=/var/lib/x/kubelet"}},
		{beside.Inside(c), beside.Slot(c), kind{
			Address: "10.244.0.128", CgroupRoot: "/mbcas-nodes/mbcas-node-2", HealthzPort: 10247, SystemReserved: reserved("1300m"),
			RootDir: "--root-dir=/var/lib/x/nodes/mbcas-node-2/kubelet",
		}},
		{c, emulated, kind{
			Address: "10.244.0.192", HealthzPort: 10246, SystemReserved: reserved("400m"), RootDir: "--root-dir=/var/lib/x/kubelet",
			RegisterWithTaints: []map[string]string{{"key": Virtual, "value": "true", "effect": "NoSchedule"}}, Labels: "--node-labels=" + Virtual + "=true",
		}},
	} {
		raw, err := kubeletConfig(tt.c, tt.s, Host{Cgroups: Hybrid})
		if err != nil {
			t.Fatal(err)
		}
		var got kind
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		for _, arg := range KubeletArgs(tt.c, tt.s) {
			switch name, _, _ := strings.Cut(arg, "="); name {
			case "--node-labels":
				got.Labels = arg
			case "--root-dir":
				got.RootDir = arg
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.s.Node, d)
		}
	}
}

func TestRenderedPathsStayInState(t *testing.T) {
	c := config.Default("/var/lib/x", true)
	h := Host{Cgroups: Hybrid, CNI: "/usr/lib/cni", Overlay: true}
	beside := LocalNode{Name: "mbcas-node-2", Index: 1, SystemReservedCPU: "1"}
	program := func(string) string { return "kubelet" }
	for _, tt := range []struct {
		c    config.Config
		s    config.Slot
		args []string
	}{
		{c, c.HostSlot(), Kubelet(c, program).Args},
		{beside.Inside(c), beside.Slot(c), beside.Kubelet(c, program).Args},
	} {
		cni, err := cniConfig(tt.c, tt.s)
		if err != nil {
			t.Fatal(err)
		}
		kubelet, err := kubeletConfig(tt.c, tt.s, h)
		if err != nil {
			t.Fatal(err)
		}
		path := regexp.MustCompile(`(?:["=]|unix://)(/[^"\n]*)`)
		for name, text := range map[string]string{
			"containerd": containerdConfig(tt.c, h), "cni": string(cni), "kubelet": string(kubelet), "kubelet flags": strings.Join(tt.args, "\n"),
		} {
			for _, m := range path.FindAllStringSubmatch(text, -1) {
				if p := m[1]; !strings.HasPrefix(p, tt.c.State+"/") && p != h.CNI && p != tt.s.CgroupRoot {
					t.Errorf("%s of %s: %s is outside the state folder", name, tt.s.Node, p)
				}
			}
		}
	}
}

func TestContainerdConfigBySnapshotter(t *testing.T) {
	c := config.Default("/var/lib/x", true)
	for overlay, want := range map[bool]string{true: `snapshotter = "overlayfs"`, false: `snapshotter = "native"`} {
		if got := containerdConfig(c, Host{Overlay: overlay}); !strings.Contains(got, want) {
			t.Errorf("overlay %v: no %s", overlay, want)
		}
	}
}
