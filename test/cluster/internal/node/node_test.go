package node

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

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
		"cpuacct, no cpu": {[]clean.Mount{v1("rw", "cpuacct")}, "", "nothing can hold a pod back"},
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

func TestRenderedPathsStayInState(t *testing.T) {
	c := config.Default("/var/lib/x", true)
	h := Host{Cgroups: Hybrid, CNI: "/usr/lib/cni", Overlay: true}
	cni, err := cniConfig(c, c.HostSlot())
	if err != nil {
		t.Fatal(err)
	}
	kubelet, err := kubeletConfig(c, c.HostSlot(), h)
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Join(Kubelet(c, func(string) string { return "kubelet" }).Args, "\n")
	path := regexp.MustCompile(`(?:["=]|unix://)(/[^"\n]*)`)
	for name, text := range map[string]string{"containerd": containerdConfig(c, h), "cni": string(cni), "kubelet": string(kubelet), "kubelet flags": args} {
		for _, m := range path.FindAllStringSubmatch(text, -1) {
			if p := m[1]; !strings.HasPrefix(p, "/var/lib/x/") && p != h.CNI {
				t.Errorf("%s: %s is outside the state folder", name, p)
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
