package scenario

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mbcas/mbcas/internal/testing/must"
)

// TestTracesOfAnyPath: each format, by relative and absolute path, with scale, loop, from and
// speed, as the rate that is played.
func TestTracesOfAnyPath(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"requests.txt":  "10\n20\n30\n",
		"stamps.csv":    "timestamp,data\r\n5000,10\r\n7000,20.0\r\n9000,40\r\n13000,8\r\n",
		"usage.csv":     "ts,value\n1633478400,1.5\n1633478460,0.5\n1633478580,2\n",
		"headless.csv":  "0,4\n1000,5",
		"one.csv":       "ts,value\n77,3\n",
		"deep/more.txt": "7\n",
	} {
		path := filepath.Join(dir, file)
		must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	}
	ms := time.Millisecond
	for trace, want := range map[string]map[time.Duration]float64{
		"file: requests.txt, format: requests":                            {0: 10, 999 * ms: 10, 1000 * ms: 20, 2500 * ms: 30, 3000 * ms: 0},
		"file: " + dir + "/requests.txt, format: requests, scale: 0.5":    {0: 5, 2500 * ms: 15},
		"file: deep/more.txt, format: requests":                           {0: 7, 1000 * ms: 0},
		"file: requests.txt, format: requests, loop: true":                {3000 * ms: 10, 7500 * ms: 20},
		"file: requests.txt, format: requests, from: 1s":                  {0: 20, 1000 * ms: 30, 2000 * ms: 0},
		"file: requests.txt, format: requests, from: 1s, loop: true":      {0: 20, 1000 * ms: 30, 2000 * ms: 10},
		"file: requests.txt, format: requests, speed: 2":                  {0: 10, 500 * ms: 20, 1000 * ms: 30, 1500 * ms: 0},
		"file: stamps.csv, format: timestamped":                           {0: 5, 2000 * ms: 10, 4000 * ms: 20, 6000 * ms: 0, 8000 * ms: 4, 10000 * ms: 0},
		"file: headless.csv, format: timestamped":                         {0: 4, 1000 * ms: 5},
		"file: usage.csv, format: usage":                                  {0: 150, 60 * time.Second: 50, 120 * time.Second: 50, 180 * time.Second: 200, 240 * time.Second: 0},
		"file: usage.csv, format: usage, scale: 2, speed: 60, loop: true": {0: 300, 1500 * ms: 100, 3000 * ms: 400, 4000 * ms: 300},
		"file: one.csv, format: usage":                                    {0: 300, 59 * time.Second: 300, 60 * time.Second: 0},
	} {
		s, err := Parse("f.yaml", []byte(strings.Replace(good, "rate: 5", "rate: {trace: {"+trace+"}}", 1)), dir)
		if err != nil {
			t.Errorf("%s: %v", trace, err)
			continue
		}
		rate := s.Setup(0, 1).Pods[0].Requests.Rate
		for at, want := range want {
			if got, _ := rate.At(at); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: at %v the rate is %v, want %v", trace, at, got, want)
			}
		}
	}
	s, err := Parse("f.yaml", []byte(good+"      spin: {trace: {file: usage.csv, format: usage}}\n"), dir)
	must.Succeed(t, err)
	if got, _ := s.Setup(0, 1).Pods[0].Spin.At(0); got != 1.5 {
		t.Errorf("a usage of 1.5 spins in %v threads", got)
	}
}

// TestTraceIsBounded: two lines far apart do not fill the memory.
func TestTraceIsBounded(t *testing.T) {
	_, err := readTrace(FormatTimestamped, strings.NewReader("0,1\n1,1\n2,1\n99999999999,1\n"))
	want := "its times reach over 99999999999 steps of 1ms, more than 1048576; cut it"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = readTrace(FormatUsage, strings.NewReader("0,1\n1000000000000000,1\n"))
	if want = "most of its lines lie 277777777778 h apart, more than 24 h; its times are read as multiples of 1s"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := readTrace(FormatRequests, strings.NewReader(strings.Repeat("1\n", maxSteps+1))); err == nil || err.Error() != fmt.Sprintf("it has more than %d lines; cut it", maxSteps) {
		t.Errorf("a long file: %v", err)
	}
}

// TestRecordedLoad: the path of a file of recorded load is a scenario, of any format, with a scale or without.
func TestRecordedLoad(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		file, text, scale string
		format            Format
		factor, speed     float64
		length            time.Duration
	}{
		{"Requests per second.txt", strings.Repeat("100\n200\n", 300), "", FormatRequests, 1, 1, 10 * time.Minute},
		{"web.csv", "timestamp,data\n0,300\n1000,0\n2000,150\n", "", FormatTimestamped, 1, 1, 3 * time.Minute},
		{"2024-01-01.csv", "0,1.0\r\n60,2.0\r\n", "=0.5", FormatUsage, 0.5, 60, 3 * time.Minute},
		{"night-and-day.txt", strings.Repeat("100\n", 3600) + strings.Repeat("10000\n", 3600), "", FormatRequests, 1.5, 1, time.Hour},
		{"cpu-use.csv", "ts,value\n60,1.0\n120,2.0\n", "", FormatUsage, 0.5, 60, 3 * time.Minute},
		{"cpu-days.csv", "\ufeffts,value\n" + minutes(10_000), "=2e-1", FormatUsage, 0.2, 60, time.Hour},
	} {
		path := filepath.Join(dir, c.file)
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o644))
		s, err := Find(path + c.scale)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		if tr := s.Pods[0].Load.Requests.Rate.Trace; tr.Format != c.format || math.Abs(tr.Scale/c.factor-1) > 1e-9 || tr.Speed != c.speed || s.Length != c.length {
			t.Errorf("%s: %s, scale %g, speed %g, length %v: want %+v", c.file, tr.Format, tr.Scale, tr.Speed, s.Length, c)
		}
	}
	for file, want := range map[string]string{
		"a/Requests per second.txt": "requests-per-second-txt", "true.csv=0.5": "true-csv-0-5", "日本": "recorded-load",
		strings.Repeat("x", 80) + ".csv": strings.Repeat("x", 59) + "-csv",
	} {
		if got := traceName(file); got != want || !name.MatchString(got) {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	zero := filepath.Join(dir, "zero.txt")
	must.Succeed(t, os.WriteFile(zero, []byte("0\n0\n"), 0o644))
	for path, want := range map[string]string{
		filepath.Join(dir, "none.csv"):     "no such file",
		filepath.Join(dir, "web.csv="):     "want a number above 0",
		filepath.Join(dir, "web.csv=-1"):   "want a number above 0",
		filepath.Join(dir, "web.csv=NaN"):  "want a number above 0",
		filepath.Join(dir, "web.csv=fast"): "want a number above 0",
		zero:                               "its mean load is 0 cores",
	} {
		if _, err := Find(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// minutes are so many lines of CPU use, a minute apart.
func minutes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,%d\n", 60*i, 1+i%3)
	}
	return b.String()
}

// FuzzTrace: no file makes the reader fail otherwise than by an error, or remember more than it
// may.
func FuzzTrace(f *testing.F) {
	f.Add(0, "1\n2\n")
	f.Add(1, "timestamp,data\n0,1\n1000,2\n")
	f.Add(2, "ts,value\n60,1\n120,2\n")
	f.Fuzz(func(t *testing.T, format int, text string) {
		formats := []Format{FormatRequests, FormatTimestamped, FormatUsage}
		r, err := readTrace(formats[uint(format)%uint(len(formats))], strings.NewReader(text))
		if err == nil && (len(r.values) == 0 || len(r.values) > maxSteps || r.step <= 0) {
			t.Errorf("%d values, step %v", len(r.values), r.step)
		}
	})
}

// FuzzParse: no text makes the reader of files fail otherwise than by problems that name the file.
func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("a: &x [*x]\n")
	f.Add("pods: [{load: {spin: {step: 1}}}]\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		_, err := Parse("f.yaml", []byte(text), dir)
		if err != nil && !strings.HasPrefix(err.Error(), "f.yaml") {
			t.Errorf("the error does not name the file: %v", err)
		}
	})
}
