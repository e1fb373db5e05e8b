package config

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestPathsStayInState(t *testing.T) {
	c := Default("/var/lib/x", true)
	for _, path := range []string{
		c.Marker(), c.Before(), c.PKI("ca.crt"), c.Log("etcd"), c.Kubeconfig("admin"),
		c.KubeletRoot(), c.PodResourcesSocket(), c.ContainerdSocket(), c.Path("etcd"),
	} {
		if !strings.HasPrefix(path, "/var/lib/x/") {
			t.Errorf("%s is outside the state folder", path)
		}
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*Config)
		wants  []string // one part of the error per fault; none: valid
	}{
		"default":           {func(*Config) {}, nil},
		"relative state":    {func(c *Config) { c.State = "here" }, []string{"--state"}},
		"quote in state":    {func(c *Config) { c.State = `/a"b` }, []string{"--state"}},
		"state too long":    {func(c *Config) { c.State = "/" + strings.Repeat("x", 90) }, []string{"too long"}},
		"loopback range":    {func(c *Config) { c.PodRange = netip.MustParsePrefix("127.0.0.0/16") }, []string{"--pod-range"}},
		"public range":      {func(c *Config) { c.PodRange = netip.MustParsePrefix("8.8.0.0/16") }, []string{"--pod-range"}},
		"host bits":         {func(c *Config) { c.PodRange = netip.MustParsePrefix("10.1.1.1/16") }, []string{"--pod-range"}},
		"no range":          {func(c *Config) { c.ServiceRange = netip.Prefix{} }, []string{"--service-range"}},
		"overlap":           {func(c *Config) { c.PodRange = netip.MustParsePrefix("10.96.4.0/24") }, []string{"overlap"}},
		"long interface":    {func(c *Config) { c.Bridge = "a-very-long-interface" }, []string{"--bridge"}},
		"reserve of a word": {func(c *Config) { c.SystemReservedCPU = "much" }, []string{"--system-reserved-cpu"}},
		"no HPA period":     {func(c *Config) { c.HPASync = 0 }, []string{"--hpa-sync"}},
		"long HPA period":   {func(c *Config) { c.HPASync = time.Hour }, []string{"--hpa-sync"}},
		"several": {
			func(c *Config) { c.NodeName, c.APIPort, c.PortOffset = "No", 0, -1 },
			[]string{"--node-name", "--api-port", "--port-offset"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := Default("/var/lib/x", true)
			tt.change(&c)
			err := c.Validate()
			if (err == nil) != (len(tt.wants) == 0) {
				t.Fatalf("Validate = %v, want %q", err, tt.wants)
			}
			for _, want := range tt.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("Validate = %v, want also %q", err, want)
				}
			}
		})
	}
}

func TestAddressOfTheAPIServer(t *testing.T) {
	if got := Default("/x", true).APIURL(); got != "https://10.96.0.1:443" {
		t.Errorf("with a node %s: pods use the service's address and port", got)
	}
	if got := Default("/x", false).APIURL(); got != "https://127.0.0.1:6443" {
		t.Errorf("without a node %s: no interface and no privilege is there", got)
	}
}

func TestClash(t *testing.T) {
	shared := Default("/var/lib/x", true)
	beside := func(change func(*Config)) Config {
		c := Default("/tmp/y", false)
		c.PortOffset = 3000
		change(&c)
		return c
	}
	tests := map[string]struct {
		c    Config
		want string
	}{
		"beside it":         {beside(func(*Config) {}), ""},
		"two nodes":         {beside(func(c *Config) { c.Node = true }), "the node"},
		"same ports":        {beside(func(c *Config) { c.PortOffset = 0 }), "--port-offset"},
		"ports one further": {beside(func(c *Config) { c.PortOffset = 1 }), "--port-offset"},
	}
	for name, tt := range tests {
		got := tt.c.Conflict(shared)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: clash %q, want %q", name, got, tt.want)
		}
	}
	alone := beside(func(*Config) {})
	third := beside(func(c *Config) { c.PortOffset = 6000 })
	if got := third.Conflict(alone); !strings.Contains(got, "--api-port") {
		t.Errorf("two API servers at one port: clash %q", got)
	}
}
