package results

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mbcas/mbcas/test/internal/traffic"
)

func TestWriteAndRead(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "out"))
	want := Cell{
		Schema: Schema, Situation: "step", Policy: "none", Repeat: 2, Started: time.Unix(5, 0).UTC(),
		Services: []Service{{Name: "web", P99: 12.5}},
		Pods:     []PodLimits{{UID: "a", Limits: []Limit{{1, 500}}, ConvergedS: 3}},
		Series:   []Second{{At: 1, LimitM: map[string]int64{"web": 500}}},
	}
	if _, ok, err := f.Read("a"); ok || err != nil {
		t.Errorf("before: %v, %v", ok, err)
	}
	old := want
	old.Schema--
	for name, c := range map[string]Cell{"a": want, "old": old} {
		if err := f.Write(name, c); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.All([]string{"gone", "old", "a"})
	if err != nil || len(all) != 1 || cmp.Diff(want, all[0]) != "" {
		t.Errorf("%v: %v", err, cmp.Diff([]Cell{want}, all))
	}
	if err := os.WriteFile(f.path("b"), []byte(`{"schema": 1, "situ`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := f.Read("b"); ok || err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("cut off: %v, %v", ok, err)
	}
}

func TestCalibrationHasEveryKind(t *testing.T) {
	f := Folder(t.TempDir())
	c := Calibration{Setup: "here", RequestMS: map[string]float64{"web": 2.5}}
	if err := f.WriteCalibration(c); err != nil {
		t.Fatal(err)
	}
	for want, kinds := range map[bool][]string{true: {"web"}, false: {"nginx", "web"}} {
		if got, ok, err := f.ReadCalibration("here", kinds); ok != want || err != nil || got.RequestMS["web"] != 2.5 {
			t.Errorf("%v: %+v, %v, %v", kinds, got, ok, err)
		}
	}
	got, ok, err := f.ReadCalibration("another machine", []string{"web"})
	if ok || err != nil || len(got.RequestMS) > 0 {
		t.Errorf("on another machine: %+v, %v, %v", got, ok, err)
	}
}

func TestService(t *testing.T) {
	ms := time.Millisecond
	all := []traffic.Result{{At: time.Second, Latency: time.Hour}} // before the event
	for i := range 100 {
		r := traffic.Result{At: 5*time.Second + time.Duration(i)*ms, Latency: time.Duration(i+1) * ms, Late: ms}
		if i == 99 {
			r.Latency, r.Status = 10*time.Second, traffic.TimedOut
		}
		all = append(all, r)
	}
	got, err := NewService("web", all, 5*time.Second)
	want := Service{Name: "web", Requests: 100, Unserved: 1, P50: 50, P95: 95, P99: 99, Max: 10_000, LateP99: 1}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := NewService("web", all, time.Hour); err == nil {
		t.Error("a service without requests has figures")
	}
}

// limits are those of a pod, sampled each second from first on.
func limits(first float64, values ...int64) (p PodLimits) {
	for i, v := range values {
		p.Add(first+float64(i), v)
	}
	return p
}

func TestConvergence(t *testing.T) {
	for name, tt := range map[string]struct {
		pod  PodLimits
		want float64
	}{
		"never":                  {limits(1, 500, 500, 500, 500), 0},
		"before the event":       {limits(1, 500, 900, 900, 900), 0},
		"after the event":        {limits(1, 500, 500, 900, 900, 905), 1},
		"twice":                  {limits(1, 500, 500, 900, 900, 700, 700), 3},
		"there and back":         {limits(1, 500, 500, 900, 900, 500, 500), 3},
		"a tenth or less":        {limits(1, 1000, 1000, 900, 1000), 0},
		"in small steps":         {limits(1, 1000, 1000, 950, 903, 858, 815, 774), 4},
		"no limit any more":      {limits(1, 500, 500, 500, 0), 2},
		"of a pod that is young": {limits(9, 500, 500, 800), 2},
	} {
		p := tt.pod
		p.Converge(2)
		if p.ConvergedS != tt.want {
			t.Errorf("%s: %+v, want %v", name, p, tt.want)
		}
	}
	if p := limits(1, 500, 500, 700); len(p.Limits) != 2 || p.FirstS != 1 || p.LastS != 3 {
		t.Errorf("%+v, want two limits from 1 s to 3 s", p)
	}
}

func TestPromise(t *testing.T) {
	// pod has one limit until a second, and another from then to its end.
	pod := func(change, last float64) (p PodLimits) {
		for at := 1.0; at <= last; at++ {
			limit := int64(500)
			if at >= change {
				limit = 900
			}
			p.Add(at, limit)
		}
		p.Converge(5)
		return p
	}
	const end = 75
	fast, slow := pod(9, end), pod(65, end)
	for name, tt := range map[string]struct {
		pods []PodLimits
		end  float64
		want Verdict
		at   float64
	}{
		"fast":            {[]PodLimits{fast}, end, Kept, 4},
		"never":           {[]PodLimits{pod(500, end)}, end, Kept, 0},
		"just in time":    {[]PodLimits{pod(64, end)}, end, Kept, 59},
		"too slow":        {[]PodLimits{fast, slow}, end, Missed, 60},
		"at the very end": {[]PodLimits{pod(74, end)}, end, Missed, 69},
		"watched shortly": {[]PodLimits{pod(9, 30)}, 30, Kept, 4},
		"still changing":  {[]PodLimits{fast, pod(22, 30)}, 30, NotShown, 17},
		"has ended":       {[]PodLimits{pod(9, 40), fast}, end, NotShown, 4},
		"no pods":         {nil, end, NotShown, 0},
	} {
		if got, at := (Cell{Pods: tt.pods}).Judge(5, tt.end); got != tt.want || at != tt.at {
			t.Errorf("%s: %s after %v s, want %s after %v s", name, got, at, tt.want, tt.at)
		}
	}
}

// TestOfOneSetup: cells of another version or machine are not pooled with those of the newest.
func TestOfOneSetup(t *testing.T) {
	of := func(version string, second int64) Cell {
		return Cell{Schema: Schema, Started: time.Unix(second, 0), Setup: Setup{MBCAS: version, Cores: 2}}
	}
	was, now := of("v2", 1), of("v2", 2)
	was.Setup.Packages, now.Setup.Packages = "nginx-light 1.22.1-9", "nginx-light 1.22.1-9+deb12u2"
	if kept, others := OfOneSetup([]Cell{was, now}); len(kept) != 1 || len(others) != 1 {
		t.Errorf("other versions of the workloads: kept %+v, others %v", kept, others)
	}
	kept, others := OfOneSetup([]Cell{of("v1", 5), of("v2", 9), of("v1", 7), of("v2", 8)})
	if len(kept) != 2 || kept[0].Setup.MBCAS != "v2" || kept[1].Setup.MBCAS != "v2" {
		t.Errorf("kept %+v, want the two of v2", kept)
	}
	if want := map[string]int{of("v1", 0).Setup.Identity(): 2}; cmp.Diff(want, others) != "" {
		t.Errorf("others %v, want %v", others, want)
	}
	if kept, others := OfOneSetup(nil); len(kept) != 0 || len(others) != 0 {
		t.Errorf("of nothing: %v, %v", kept, others)
	}
}

// TestOtherSettings: cells of other settings of the same policy, of another calibration or another seed are not pooled,
// and the settings of one policy leave the cells of another where they are.
func TestOtherSettings(t *testing.T) {
	of := func(policy, settings string, web float64, seed uint64, second int64) Cell {
		return Cell{
			Schema: Schema, Situation: "step", Policy: policy, Settings: settings, Started: time.Unix(second, 0),
			Setup: Setup{Seed: seed, RequestMS: map[string]float64{"web": web}},
		}
	}
	kept, others := OfOneSetup([]Cell{
		of("vpa", "old", 2, 1, 1), of("vpa", "new", 2, 1, 3), of("hpa", "x", 2, 1, 2), of("hpa", "x", 2, 1, 4),
		of("hpa", "x", 3, 1, 0), of("hpa", "x", 2, 7, 0),
	})
	var got []string
	for _, c := range kept {
		got = append(got, c.Policy+c.Settings)
	}
	if d := cmp.Diff([]string{"vpanew", "hpax", "hpax"}, got); d != "" {
		t.Error(d)
	}
	want := map[string]int{
		"other settings of vpa in step": 1, Setup{Seed: 7}.Identity(): 1,
		"another calibration than that of the newest cell, step, hpa": 1,
	}
	if d := cmp.Diff(want, others); d != "" {
		t.Error(d)
	}
}

// TestOtherCalibrationOfAFailedCell: cells of two calibrations are not pooled either where the newest cell failed.
func TestOtherCalibrationOfAFailedCell(t *testing.T) {
	of := func(web float64, second int64, why string) Cell {
		c := Cell{Schema: Schema, Situation: "step", Policy: "hpa", Started: time.Unix(second, 0), Error: why}
		if web > 0 {
			c.Setup.RequestMS = map[string]float64{"web": web}
		}
		return c
	}
	for name, failed := range map[string]Cell{
		"with a calibration": of(3, 9, "no pod is Ready"), "without": of(0, 9, "the disk is full"),
	} {
		kept, others := OfOneSetup([]Cell{of(2, 1, ""), of(3, 2, ""), failed})
		if len(kept) != 2 || kept[0].Setup.RequestMS["web"] != 3 || len(others) != 1 {
			t.Errorf("%s: kept %+v, others %v; want the second and the one that failed", name, kept, others)
		}
	}
}

func TestSettingsAreKept(t *testing.T) {
	f := Folder(t.TempDir())
	const text = `{"objects": [1]}`
	if err := f.WriteSettings(text); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := f.Settings(Digest(text)); err != nil || !ok || !strings.Contains(got, `"objects"`) {
		t.Errorf("%q, %v, %v", got, ok, err)
	}
	if _, ok, err := f.Settings(Digest("{}")); ok || err != nil {
		t.Errorf("others: %v, %v", ok, err)
	}
}

// TestOtherCPU: cells of two models of CPU are not pooled, even with as many cores.
func TestOtherCPU(t *testing.T) {
	of := func(model string, second int64) Cell {
		cpu := CPUModel("processor\t: 0\nmodel\t\t: 85\nmodel name\t: " + model + "\n\nprocessor\t: 1\n")
		return Cell{Schema: Schema, Started: time.Unix(second, 0), Setup: Setup{Cores: 2, CPU: cpu}}
	}
	kept, others := OfOneSetup([]Cell{of("Slow 1", 1), of("Fast: 2", 2)})
	if len(kept) != 1 || kept[0].Setup.CPU != "Fast: 2" || len(others) != 1 {
		t.Errorf("kept %+v, others %v, want the cell of Fast: 2 alone", kept, others)
	}
	if got := CPUModel("processor\t: 0\nBogoMIPS\t: 50\n"); got != "" {
		t.Errorf("model %q of a text without one, want none", got)
	}
}

// TestMeans: means are over the seconds after the event, also where a workload has no pod for some of them.
func TestMeans(t *testing.T) {
	second := func(at, usage float64, idle int) Second {
		return Second{
			At: at, LimitM: map[string]int64{"xz": 0}, UsageM: map[string]float64{"xz": usage},
			Throttled: map[string]float64{"xz": usage / 10}, IdleClass: map[string]int{"xz": idle},
		}
	}
	gone := Second{At: 5}
	series := []Second{second(1, 9000, 1), second(2, 100, 0), second(3, 300, 1), second(4, 200, 2), gone}
	means, ok := Means(series, time.Second)
	want := Mean{UsageM: 150, Throttled: 15, IdleClass: 0.5}
	if !ok || len(means) != 1 || means["xz"] != want {
		t.Errorf("%v, %v; want %v of xz", means, ok, want)
	}
	if means, ok := Means(series, 5*time.Second); ok {
		t.Errorf("%v of a time without seconds", means)
	}
}
