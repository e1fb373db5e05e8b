package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/program"
)

func TestParse(t *testing.T) {
	pod := map[string]string{"NODE_NAME": "n1", "POD_UID": "u1", "POD_NAME": "agent-x", "POD_NAMESPACE": "elsewhere"}
	cases := map[string]struct {
		args  []string
		env   map[string]string
		check func(settings) bool
		bad   string // part of the error; empty: none
	}{
		"in a pod": {env: pod, check: func(s settings) bool {
			c := s.agent
			return c.Node == "n1" && c.Kernel.OwnPod == "u1" && c.Holder == "agent-x" && c.Namespace == "elsewhere" &&
				c.Interval == time.Second && c.Round.LookInterval == 200*time.Millisecond && !c.Kernel.MemoryIOPressure && c.Kernel.Root == "/sys/fs/cgroup" && s.listen == ":9090" && s.debugListen.String() == "127.0.0.1:9091" && s.logLevel == slog.LevelInfo
		}},
		"flags win": {args: []string{"--node-name=n2", "--cgroup-root=/host/cgroup", "--interval=500ms", "--reserve=0.2", "--listen=:1", "--log-level=debug"}, env: pod, check: func(s settings) bool {
			c := s.agent
			return c.Node == "n2" && c.Kernel.Root == "/host/cgroup" && c.Interval == 500*time.Millisecond && c.Round.Reserve == 0.2 && s.listen == ":1" && s.logLevel == slog.LevelDebug
		}},
		"outside of a pod": {args: []string{"--node-name=n2"}, check: func(s settings) bool {
			return s.agent.Namespace == "mbcas-system" && s.agent.Holder == "n2" && s.agent.Kernel.OwnPod == ""
		}},
		"stall signals":            {args: []string{"--memory-io-pressure"}, env: pod, check: func(s settings) bool { return s.agent.Kernel.MemoryIOPressure }},
		"no looks":                 {args: []string{"--look-interval=0"}, env: pod, check: func(s settings) bool { return s.agent.Round.LookInterval == 0 }},
		"bad look":                 {args: []string{"--look-interval=10ms"}, env: pod, bad: "LookInterval"},
		"no node":                  {bad: "no node"},
		"bad interval":             {args: []string{"--interval=1h"}, env: pod, bad: "want 100ms to 10s"},
		"bad reserve":              {args: []string{"--reserve=1"}, env: pod, bad: "Reserve"},
		"bad level":                {args: []string{"--log-level=loud"}, env: pod, bad: "loud"},
		"debug on any address":     {args: []string{"--debug-listen=0.0.0.0:9091"}, env: pod, bad: "want a loopback address, such as 127.0.0.1:9091"},
		"debug without a host":     {args: []string{"--debug-listen=:9091"}, env: pod, bad: "debug-listen"},
		"debug on a host's name":   {args: []string{"--debug-listen=localhost:9091"}, env: pod, bad: "debug-listen"},
		"debug on an IPv6 address": {args: []string{"--debug-listen=[::1]:1"}, env: pod, check: func(s settings) bool { return s.debugListen.Port() == 1 }},
		"unknown flag":             {args: []string{"--nope"}, env: pod, bad: "nope"},
		"loose argument":           {args: []string{"start"}, env: pod, bad: "start"},
		"no duration":              {args: []string{"--interval=1"}, env: pod, bad: "interval"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := parse(c.args, func(k string) string { return c.env[k] }, new(bytes.Buffer))
			if c.bad == "" {
				if err != nil || !c.check(s) {
					t.Errorf("%+v, %v", s, err)
				}
				return
			}
			var usage program.UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("error %v, want a usage error with %q", err, c.bad)
			}
		})
	}
}

// TestRunNeedsAnAPIServer: outside of a cluster the error says which flag helps.
func TestRunNeedsAnAPIServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	var out bytes.Buffer
	err := run(t.Context(), []string{"--node-name=n1", "--listen=127.0.0.1:0"}, func(string) string { return "off" }, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("error %v, want one that names --kubeconfig", err)
	}
}

func TestVersion(t *testing.T) {
	linked := version
	t.Cleanup(func() { version = linked })
	version = "v1.2.3" // what -ldflags "-X main.version=…" does; the linker sets nothing but a string variable of this name
	for _, arg := range []string{"version", "--version", "-version"} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{arg}, func(string) string { return "" }, &out, &out); err != nil || out.String() != "mbcas-agent v1.2.3\n" {
			t.Errorf("%s: %q, %v", arg, out.String(), err)
		}
	}
}
