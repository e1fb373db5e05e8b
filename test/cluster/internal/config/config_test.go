package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestPathsStayInState(t *testing.T) {
	c := Default("/var/lib/x")
	for _, path := range []string{
		c.PKI("ca.crt"), c.Log("etcd"), c.Kubeconfig("admin"), c.KubeletRoot(), c.ContainerdSocket(), c.PauseArchive(),
		c.Dir(Node{Name: "a", Index: 1}), c.Dir(Node{Name: "a", Index: 1, VM: &VM{}}),
	} {
		if !strings.HasPrefix(path, "/var/lib/x/") {
			t.Errorf("%s is outside the state folder", path)
		}
	}
}

func TestValidate(t *testing.T) {
	pods := func(prefix string) func(*Config) {
		return func(c *Config) { c.PodRange = netip.MustParsePrefix(prefix) }
	}
	tests := map[string]struct {
		change func(*Config)
		wants  []string // one part of the error per fault; none: valid
	}{
		"default":           {func(*Config) {}, nil},
		"relative state":    {func(c *Config) { c.State = "here" }, []string{"--state"}},
		"quote in state":    {func(c *Config) { c.State = `/a"b` }, []string{"--state"}},
		"state too long":    {func(c *Config) { c.State = "/" + strings.Repeat("x", 90) }, []string{"too long"}},
		"loopback range":    {pods("127.0.0.0/16"), []string{"--pod-range"}},
		"public range":      {pods("8.8.0.0/16"), []string{"--pod-range"}},
		"host bits":         {pods("10.1.1.1/16"), []string{"--pod-range"}},
		"no range":          {func(c *Config) { c.ServiceRange = netip.Prefix{} }, []string{"--service-range"}},
		"overlap":           {pods("10.96.4.0/24"), []string{"overlap"}},
		"reserve of a word": {func(c *Config) { c.SystemReservedCPU = "much" }, []string{"--system-reserved-cpu"}},
		"no HPA period":     {func(c *Config) { c.HPASync = 0 }, []string{"--hpa-sync"}},
		"several": {
			func(c *Config) { c.NodeName, c.HPASync = "../x", time.Hour }, []string{"DNS label", "--hpa-sync"},
		},
	}
	for name, tt := range tests {
		c := Default("/var/lib/x")
		tt.change(&c)
		err := c.Validate()
		if (err == nil) != (len(tt.wants) == 0) {
			t.Errorf("%s: %v, want %q", name, err, tt.wants)
			continue
		}
		for _, want := range tt.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want also %q", name, err, want)
			}
		}
	}
}

func TestSlotsShareTheRange(t *testing.T) {
	for _, pods := range []string{"10.244.0.0/24", "10.1.0.0/16", "192.168.7.16/28"} {
		c := Default("/x")
		c.PodRange = netip.MustParsePrefix(pods)
		end := c.PodRange.Addr()
		for i := range Slots {
			s := c.Slot(i)
			if !end.Less(s.IP) || !s.IP.Less(s.First) || !s.First.Less(s.Last) {
				t.Errorf("%s, slot %d: %+v overlaps what is before it (up to %v)", pods, i, s, end)
			}
			if !c.PodRange.Contains(s.Last) || !c.PodRange.Contains(s.Last.Next()) {
				t.Errorf("%s, slot %d: %v is the broadcast address or beyond the range", pods, i, s.Last)
			}
			if s.MaxPods() < 2 || s.MaxPods() > 110 {
				t.Errorf("%s, slot %d: room for %d pods", pods, i, s.MaxPods())
			}
			if mac := s.HardwareAddr(); mac[0]&1 != 0 || mac[0]&2 == 0 {
				t.Errorf("%v is not a locally administered address of one station", mac)
			}
			end = s.Last
		}
	}
	if got := Default("/x").Slot(0).MaxPods(); got != 110 {
		t.Errorf("the first node has room for %d pods, want 110", got)
	}
}
