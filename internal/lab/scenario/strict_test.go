package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// good is a file without a fault; a test puts a fault into it.
const good = `name: t
description: a test
node: {cores: 2}
length: 60s
pods:
  - name: web
    role: service
    request: 500m
    limit: "1"
    load:
      requests:
        rate: 5
        serviceTime: 10ms
`

// TestStrictFiles: the whole message of every class of fault.
func TestStrictFiles(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{"bad.csv": "ts,value\n0,1\n60,x\n", "back.csv": "ts,value\n60,1\n0,1\n", "empty.txt": "\n", "three.txt": "1\n2\n3\n", "no-comma.csv": "1\n"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
	}
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the good file has no %q", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	rate := func(profile string) string { return swap("rate: 5", "rate: "+profile) }
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", `f.yaml: the file is empty; write a scenario into it`},
		"no YAML":          {"name: t\n\tx: 1\n", `f.yaml:2: this is not YAML: found a tab character that violates indentation`},
		"a list":           {"- 1\n", `f.yaml:1: want fields (name, description, node, nodes, length, warmUp, pods, loadSteps, reference, quotas, outages), not a list`},
		"two documents":    {good + "---\nname: u\n", `f.yaml: the file has more than one document; a file is one scenario`},
		"alias":            {swap("name: t\n", "name: &a t\n"), `f.yaml:1: name: anchors and aliases are not read; write the value where it is needed`},
		"null":             {swap("length: 60s", "length:"), `f.yaml:4: length: it has no value; write one, or leave the field out`},
		"unknown field":    {swap("    limit: ", "    limits: "), `f.yaml:9: pods[0].limits: there is no such field here; there are name, namespace, workload, role, request, limit, priority, replicas, parallelism, optOut, start, end, startInterval, stagger, load, constraints, readyTimeout, externalChanges`},
		"twice":            {swap("length: 60s", "length: 60s\nlength: 50s"), `f.yaml:5: length: it stands in line 4, too; keep one of them`},
		"not fields":       {swap("node: {cores: 2}", "node: 2"), `f.yaml:3: node: want fields (cores, allocatable, systemUsage, resizeCost), not "2"`},
		"not a list":       {swap("node:", "loadSteps: 5s\nnode:"), `f.yaml:3: loadSteps: want a list, not "5s"`},
		"not text":         {swap("name: t", "name: 5"), `f.yaml:1: name: want text, not "5"`},
		"no yes or no":     {swap("role: service", "role: service\n    optOut: maybe"), `f.yaml:8: pods[0].optOut: want true or false, not "maybe"`},
		"not whole":        {swap("cores: 2", "cores: 2.5"), `f.yaml:3: node.cores: want a whole number, not "2.5"`},
		"no number":        {rate("many"), `f.yaml:12: pods[0].load.requests.rate: want a number, not "many"`},
		"no finite number": {rate(".inf"), `f.yaml:12: pods[0].load.requests.rate: want a number, not ".inf"`},
		"no CPU":           {swap("500m", "5k"), `f.yaml:8: pods[0].request: want CPU such as "500m" or "2", not "5k"`},
		"negative CPU":     {swap("500m", "-1"), `f.yaml:8: pods[0].request: want CPU such as "500m" or "2", not "-1"`},
		"too fine CPU":     {swap("500m", "0.0005"), `f.yaml:8: pods[0].request: 0.0005 is finer than a thousandth of a core; round it`},
		"no time":          {swap("60s", "60"), `f.yaml:4: length: want a time such as "90s" or "10ms", not "60"`},
		"long time":        {swap("60s", "721h"), `f.yaml:4: length: want more than 0s, up to 720h0m0s, not "721h"`},
		"late replicas":    {swap("role: service", "role: service\n    replicas: 3\n    start: 1s\n    startInterval: 9223372036s"), `f.yaml:10: pods[0].startInterval: want up to 720h0m0s, not "9223372036s"`},
		"name missing":     {swap("name: t\n", ""), `f.yaml:1: name: it is missing; want lower-case letters, digits and dashes, at most 63`},
		"no name":          {swap("name: web", "name: Web_1"), `f.yaml:6: pods[0].name: want lower-case letters, digits and dashes, at most 63, not "Web_1"`},
		"no description":   {swap("description: a test\n", ""), `f.yaml:1: description: it is missing`},
		"no cores":         {swap("{cores: 2}", "{}"), `f.yaml:3: node.cores: it is missing; want 1 to 1024`},
		"allocatable":      {swap("{cores: 2}", "{cores: 2, allocatable: 2500m}"), `f.yaml:3: node.allocatable: 2.5 is more than the node has, 2`},
		"system use":       {swap("{cores: 2}", "{cores: 2, systemUsage: 2}"), `f.yaml:3: node.systemUsage: 2 leaves nothing of the node, 2`},
		"nodes":            {swap("node:", "nodes: 0\nnode:"), `f.yaml:3: nodes: want 1 to 10000, not "0"`},
		"length missing":   {swap("length: 60s\n", ""), `f.yaml:1: length: it is missing; want more than 0s, up to 720h0m0s`},
		"warm-up":          {swap("length: 60s", "length: 60s\nwarmUp: 60s"), `f.yaml:5: warmUp: 1m0s leaves nothing of the length, 1m0s; make it shorter`},
		"quota":            {swap("node:", "quotas: [{namespace: x}]\nnode:"), `f.yaml:3: quotas[0].limits: it is missing; want more than 0`},
		"outage":           {swap("node:", "outages: [{at: 70s, length: 5s}]\nnode:"), `f.yaml:3: outages[0].at: 1m10s is not before the end, 1m0s`},
		"constraints":      {swap("role: service", "role: service\n    constraints: {floor: 500m, ceiling: 400m}"), `f.yaml:8: pods[0].constraints.floor: 0.5 is above the ceiling, 0.4`},
		"external change":  {swap("role: service", "role: service\n    externalChanges: [{at: 70s, limit: 2}]"), `f.yaml:8: pods[0].externalChanges[0]: want a limit above the request, and a time before the end, 1m0s`},
		"late event":       {swap("node:", "loadSteps: [5s, 70s]\nnode:"), `f.yaml:3: loadSteps[1]: 1m10s is not before the end, 1m0s`},
		"no pods":          {good[:strings.Index(good, "pods:")], `f.yaml:1: pods: it is missing`},
		"no role":          {swap("    role: service\n", ""), `f.yaml:6: pods[0].role: it is missing; want one of service, batch, honest, liar, other`},
		"other role":       {swap("role: service", "role: king"), `f.yaml:7: pods[0].role: want one of service, batch, honest, liar, other, not "king"`},
		"limit":            {swap(`limit: "1"`, `limit: 400m`), `f.yaml:9: pods[0].limit: 0.4 is less than the request, 0.5, which Kubernetes refuses`},
		"replicas":         {swap("role: service", "role: service\n    replicas: -1"), `f.yaml:8: pods[0].replicas: want 1 to 10000, not "-1"`},
		"parallelism":      {swap("role: service", "role: service\n    parallelism: -1"), `f.yaml:8: pods[0].parallelism: want 0 to 4096, not "-1"`},
		"end":              {swap("role: service", "role: service\n    start: 5s\n    end: 5s"), `f.yaml:9: pods[0].end: 5s is not after the start, 5s`},
		"late start":       {swap("role: service", "role: service\n    replicas: 2\n    start: 30s\n    startInterval: 30s"), `f.yaml:9: pods[0].start: the last replica would come at 1m0s, which is not before the end of the scenario, 1m0s`},
		// 9999 times this is 2^64 and 8102 ns.
		"starts overflow":  {swap("role: service", "role: service\n    replicas: 10000\n    startInterval: 1844858893260282ns"), `f.yaml:6: pods[0].start: the last replica would come at 2562047h47m16.854775807s, which is not before the end of the scenario, 1m0s`},
		"stagger overflow": {swap("role: service", "role: service\n    replicas: 10000\n    stagger: 1844858893260282ns"), `f.yaml:9: pods[0].stagger: the load of the last replica would begin at 2562047h47m16.854775807s; want a time up to 720h0m0s`},
		"same name":        {good + "  - {name: web, role: other}\n", `f.yaml:14: pods[1].name: the pod web is in pods[0], too; give one of them another name`},
		"do not fit":       {good + "  - {name: b, role: other, request: 1600m, start: 5s}\n", `f.yaml:5: pods: at 5s the requests sum to 2.1, more than the node's allocatable 2: the scheduler would not place them all`},
		"service":          {swap("        serviceTime: 10ms\n", ""), `f.yaml:11: pods[0].load.requests.serviceTime: it is missing; want 1us to 1m`},
		"spread":           {swap("serviceTime: 10ms", "serviceTime: 10ms\n        distribution: wide"), `f.yaml:14: pods[0].load.requests.distribution: want one of fixed, exponential, not "wide"`},
		"negative rate":    {rate("-1"), `f.yaml:12: pods[0].load.requests.rate: want 0 to 1e6, not "-1"`},
		"no profile":       {rate("{}"), `f.yaml:12: pods[0].load.requests.rate: want a number, or exactly one of constant, step, ramp, square, sine, burst, noise, trace; it has 0`},
		"two profiles":     {rate("{constant: 1, step: {after: 2}}"), `f.yaml:12: pods[0].load.requests.rate: want a number, or exactly one of constant, step, ramp, square, sine, burst, noise, trace; it has 2`},
		"step":             {rate("{step: {before: -2}}"), `f.yaml:12: pods[0].load.requests.rate.step.before: want 0 to 1e6, not "-2"`},
		"ramp":             {rate("{ramp: {from: 1, to: 2}}"), `f.yaml:12: pods[0].load.requests.rate.ramp.end: it is missing; want up to 720h0m0s`},
		"square":           {rate("{square: {high: 2, on: 5s}}"), `f.yaml:12: pods[0].load.requests.rate.square.off: it is missing; want 10ms to 720h0m0s`},
		"short square":     {rate("{square: {high: 2, on: 1ns, off: 5s}}"), `f.yaml:12: pods[0].load.requests.rate.square.on: want 10ms to 720h0m0s, not "1ns"`},
		"no turn":          {rate("{sine: {mean: 2}}"), `f.yaml:12: pods[0].load.requests.rate.sine.period: it is missing; want more than 0s, up to 720h0m0s`},
		"sine":             {rate("{sine: {mean: 2, period: 5s, phase: 2}}"), `f.yaml:12: pods[0].load.requests.rate.sine.phase: want 0 to 1, not "2"`},
		"burst":            {rate("{burst: {high: 2, length: 5s, period: 4s}}"), `f.yaml:12: pods[0].load.requests.rate.burst.period: 4s is shorter than the length, 5s`},
		"short burst":      {rate("{burst: {high: 2, length: 1ns, period: 1ns}}"), `f.yaml:12: pods[0].load.requests.rate.burst.length: want 10ms to 720h0m0s, not "1ns"`},
		"short turn":       {rate("{burst: {high: 2, length: 10ms, period: 9ms}}"), `f.yaml:12: pods[0].load.requests.rate.burst.period: 9ms is shorter than the length, 10ms`},
		"burst jitter":     {rate("{burst: {high: 2, length: 5s, jitter: 1}}"), `f.yaml:12: pods[0].load.requests.rate.burst.jitter: a single burst has no jitter; set a period, or leave jitter out`},
		"noise":            {rate("{noise: {mean: 2, interval: 1ms}}"), `f.yaml:12: pods[0].load.requests.rate.noise.interval: want 10ms to 720h0m0s, not "1ms"`},
		"long noise":       {strings.Replace(rate("{noise: {mean: 2, interval: 10ms}}"), "60s", "10h", 1), `f.yaml:12: pods[0].load.requests.rate.noise.interval: 10ms makes more than 1048576 steps until the end; make it longer`},
		"trace format":     {rate("{trace: {file: three.txt, format: csv}}"), `f.yaml:12: pods[0].load.requests.rate.trace.format: want one of requests, timestamped, usage, not "csv"`},
		"trace file":       {rate("{trace: {format: usage}}"), `f.yaml:12: pods[0].load.requests.rate.trace.file: it is missing`},
		"no trace":         {rate("{trace: {file: none.txt, format: usage}}"), `f.yaml:12: pods[0].load.requests.rate.trace.file: open ` + filepath.Join(dir, "none.txt") + `: no such file or directory`},
		"trace figure":     {rate("{trace: {file: bad.csv, format: usage}}"), `f.yaml:12: pods[0].load.requests.rate.trace.file: bad.csv, read as usage: line 3: want a figure of 0 or more, not "x"`},
		"trace backwards":  {rate("{trace: {file: back.csv, format: usage}}"), `f.yaml:12: pods[0].load.requests.rate.trace.file: back.csv, read as usage: line 3: its time 0 does not lie after that of the line before, 60`},
		"trace, no comma":  {rate("{trace: {file: no-comma.csv, format: usage}}"), `f.yaml:12: pods[0].load.requests.rate.trace.file: no-comma.csv, read as usage: line 1: want a time, a comma and a figure, not "1"`},
		"empty trace":      {rate("{trace: {file: empty.txt, format: requests}}"), `f.yaml:12: pods[0].load.requests.rate.trace.file: empty.txt, read as requests: it has no figures`},
		"trace scale":      {rate("{trace: {file: three.txt, format: requests, scale: 0}}"), `f.yaml:12: pods[0].load.requests.rate.trace.scale: want more than 0, up to 1e9, not "0"`},
		"trace speed":      {rate("{trace: {file: three.txt, format: requests, speed: -1}}"), `f.yaml:12: pods[0].load.requests.rate.trace.speed: want more than 0, up to 1e5, not "-1"`},
		"trace too fast":   {rate("{trace: {file: three.txt, format: requests, speed: 2000}}"), `f.yaml:12: pods[0].load.requests.rate.trace.speed: at 2000 a step of the trace takes 500µs, less than 1ms; make it slower`},
		"late trace from":  {rate("{trace: {file: three.txt, format: requests, from: 721h}}"), `f.yaml:12: pods[0].load.requests.rate.trace.from: 721h0m0s is not before the end of the trace, 3s`},
		"trace from":       {rate("{trace: {file: three.txt, format: requests, from: 3s}}"), `f.yaml:12: pods[0].load.requests.rate.trace.from: 3s is not before the end of the trace, 3s`},
		"requests spin":    {good + "      spin: {trace: {file: three.txt, format: requests}}\n", `f.yaml:14: pods[0].load.spin.trace.format: requests counts requests, not threads; use it as the rate of load.requests`},
		"all at once": {
			"name: t\nlength: x\npods:\n  - name: web\n    limit: y\n    role: king\n",
			"f.yaml:1: description: it is missing\n" +
				"f.yaml:1: node: it is missing\n" +
				"f.yaml:2: length: want a time such as \"90s\" or \"10ms\", not \"x\"\n" +
				"f.yaml:5: pods[0].limit: want CPU such as \"500m\" or \"2\", not \"y\"\n" +
				"f.yaml:6: pods[0].role: want one of service, batch, honest, liar, other, not \"king\"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f.yaml", []byte(c.text), dir)
			if err == nil {
				t.Fatal("no error")
			}
			if d := cmp.Diff(c.want, err.Error()); d != "" {
				t.Error(d)
			}
			if found := (Problems)(nil); !errors.As(err, &found) || len(found) != strings.Count(c.want, "\n")+1 {
				t.Errorf("the error does not hold its problems: %#v", err)
			}
		})
	}
	if _, err := Parse("f.yaml", []byte(good), dir); err != nil {
		t.Errorf("the good file: %v", err)
	}
}
