package kernel

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

// The texts that every parser is tried on besides its own.
var oddTexts = map[string]string{
	"empty":         "",
	"only newlines": "\n\n\n",
	"only spaces":   "   \t  ",
	"zero bytes":    "\x00\x00\x00\x00",
	"not UTF-8":     "\xff\xfe usage_usec \xf0\x28\x8c\x28\n",
	"one long line": strings.Repeat("9", 1<<18),
	"long lines":    strings.Repeat("some_key 1234567890\n", 1<<18/20),
	"many spaces":   strings.Repeat(" ", 1<<18) + "\n",
}

type parseCase[T comparable] struct {
	text   string
	want   T
	err    string
	reason string
}

func checkCases[T comparable](t *testing.T, parse func([]byte) (T, error), cases map[string]parseCase[T]) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parse([]byte(c.text))
			checkParse(t, got, c.want, err, c.err, c.reason)
		})
	}
}

func TestParseStat(t *testing.T) {
	checkCases(t, parseStat, map[string]parseCase[Stat]{
		"linux 6.12": {
			text: "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnice_usec 0\ncore_sched.force_idle_usec 0\n" +
				"nr_periods 20\nnr_throttled 3\nthrottled_usec 700\nnr_bursts 0\nburst_usec 0\n",
			want: Stat{Usage: 1500 * us, Periods: 20, Throttled: 3, ThrottledTime: 700 * us},
		},
		"controller off": {
			text: "usage_usec 7\nuser_usec 7\nsystem_usec 0\n", want: Stat{Usage: 7 * us},
			reason: "the root and cgroups without the cpu controller count only usage",
		},
		"CRLF":          {text: "usage_usec 5\r\nnr_periods 2\r\n", want: Stat{Usage: 5 * us, Periods: 2}},
		"tabs, indents": {text: " usage_usec\t5 \n", want: Stat{Usage: 5 * us}},
		"unknown lines": {text: "usage_usec_total 9\nusage_usec 5\nfoo\nbar -1\nusage_use 4\n", want: Stat{Usage: 5 * us}},
		"unknown tail cut": {
			text: "usage_usec 5\nburst_us", want: Stat{Usage: 5 * us},
			reason: "what is not read can't be wrong",
		},
		"largest":      {text: "usage_usec 9223372036854775\n", want: Stat{Usage: 9223372036854775 * us}},
		"no usage":     {text: "nr_periods 1\n", err: "field usage_usec: missing"},
		"cut number":   {text: "usage_usec 15", err: "field usage_usec: cut short", reason: "15 may have been 1500"},
		"cut key":      {text: "usage_usec 15\nnr_throttled", err: "field nr_throttled: cut short"},
		"no value":     {text: "usage_usec\n", err: "field usage_usec: empty"},
		"negative":     {text: "usage_usec -5\n", err: "field usage_usec: negative"},
		"max":          {text: "usage_usec max\n", err: `field usage_usec: not a number: "max"`},
		"fraction":     {text: "usage_usec 1.5\n", err: `field usage_usec: not a number: "1.5"`},
		"two values":   {text: "nr_periods 5 6\nusage_usec 1\n", err: `field nr_periods: not a number: "5 6"`},
		"above 292 y":  {text: "usage_usec 9223372036854776\n", err: "field usage_usec: too large"},
		"above 64 bit": {text: "usage_usec 1\nnr_periods 18446744073709551616\n", err: "field nr_periods: too large"},
		"not UTF-8":    {text: "usage_usec \xff\xfe\n", err: `field usage_usec: not a number: "\xff\xfe"`},
		"long number":  {text: "usage_usec 1" + strings.Repeat("0", 1<<20) + "\n", err: "field usage_usec: too large"},
	})
}

func TestParseStatV1(t *testing.T) {
	checkCases(t, parseStatV1, map[string]parseCase[Stat]{
		"linux 6.18":   {text: "nr_periods 20\nnr_throttled 3\nthrottled_time 700\nnr_bursts 0\nburst_time 0\n", want: Stat{Periods: 20, Throttled: 3, ThrottledTime: 700}},
		"schedstats":   {text: "nr_periods 1\nnr_throttled 0\nthrottled_time 0\nwait_sum 12345\n", want: Stat{Periods: 1}},
		"no periods":   {text: "nr_throttled 3\n", err: "field nr_periods: missing"},
		"negative":     {text: "nr_periods 1\nthrottled_time -1\n", err: "field throttled_time: negative"},
		"jump by 2^63": {text: "nr_periods 1\nthrottled_time 9223372036854775808\n", err: "field throttled_time: too large"},
	})
}

func TestParseQuota(t *testing.T) {
	checkCases(t, parseMax, map[string]parseCase[Quota]{
		"limited":         {text: "50000 100000\n", want: Quota{Limit: 50 * ms, Period: 100 * ms}},
		"unlimited":       {text: "max 100000\n", want: Quota{Period: 100 * ms}},
		"CRLF":            {text: "max 100000\r\n", want: Quota{Period: 100 * ms}},
		"no period":       {text: "50000\n", err: "field period: empty", reason: "the kernel prints both"},
		"max as period":   {text: "50000 max\n", err: `field period: not a number: "max"`},
		"zero quota":      {text: "0 100000\n", err: "field quota: zero", reason: "0 would mean no quota"},
		"zero period":     {text: "max 0\n", err: "field period: zero", reason: "rates divide by it"},
		"negative":        {text: "-1 100000\n", err: "field quota: negative", reason: "-1 is v1's word"},
		"cut":             {text: "50000 1000", err: "field quota: cut short"},
		"three values":    {text: "50000 100000 1\n", err: `field period: not a number: "100000 1"`},
		"maximum":         {text: "maximum 100000\n", err: `field quota: not a number: "maximum"`},
		"far too large":   {text: "99999999999999999999 100000\n", err: "field quota: too large"},
		"only a new line": {text: "\n", err: "field quota: empty"},
	})
	for text, want := range map[string]time.Duration{"-1\n": 0, "50000\n": 50 * ms, "1000\r\n": ms} {
		got, err := parseQuotaV1([]byte(text))
		checkParse(t, got, want, err, "", text)
	}
	for text, want := range map[string]string{"-1": "field quota: cut short", "-2\n": "field quota: negative", "max\n": `field quota: not a number: "max"`} {
		got, err := parseQuotaV1([]byte(text))
		checkParse(t, got, 0, err, want, text)
	}
}

func TestParsePressure(t *testing.T) {
	const some, full = "some avg10=0.00 avg60=1.50 avg300=0.00 total=123\n", "full avg10=0.00 avg60=0.00 avg300=0.00 total=45\n"
	checkCases(t, parsePressure, map[string]parseCase[Pressure]{
		"both":          {text: some + full, want: Pressure{true, 123 * us, 45 * us}},
		"before 5.13":   {text: some, want: Pressure{true, 123 * us, 0}, reason: "no full line then"},
		"other order":   {text: full + some, want: Pressure{true, 123 * us, 45 * us}},
		"unknown field": {text: "some avg10=0.00 new=1 total=9\nmost total=1\n", want: Pressure{true, 9 * us, 0}},
		"only full":     {text: full, err: "field some: missing"},
		"no total":      {text: "some avg10=0.00\n", err: "field total: missing"},
		"cut":           {text: some[:len(some)-2], err: "field total: cut short"},
		"full cut":      {text: some + full[:len(full)-1], err: "field total: cut short"},
		"negative":      {text: "some total=-3\n", err: "field total: negative"},
		"fraction":      {text: "some total=1.5\n", err: `field total: not a number: "1.5"`},
	})
}

func TestParseProcStat(t *testing.T) {
	checkCases(t, parseProcStat, map[string]parseCase[time.Duration]{
		"linux":       {text: "cpu  100 20 3 9999 8888 4 5 7777 100 20\ncpu0 1 1 1 1\n", want: 132 * 10 * ms, reason: "no idle, iowait, stolen; guests are in user and nice"},
		"cut after":   {text: "cpu  1 0 0 9 0 0 0 0 0 0\nintr 12", want: 10 * ms, reason: "only the first line matters"},
		"other first": {text: "cpu0 1 2 3\n", err: "field cpu: missing"},
		"columns":     {text: "cpu 1 2 3 4\n", err: "field cpu: empty"},
		"cut":         {text: "cpu  100 20 3 9999 8888 4 5 7777 100 20", err: "field cpu: cut short"},
		"sum":         {text: "cpu 900000000000000000 900000000000000000 0 0 0 0 0\n", want: 0, err: "field cpu: too large"},
	})
}

// TestOddTexts: nothing the file may contain makes a parser panic or allocate
// in proportion to it.
func TestOddTexts(t *testing.T) {
	for name, text := range oddTexts {
		b := []byte(text)
		for parser, parse := range parsers {
			t.Run(name+"/"+parser, func(t *testing.T) {
				var err error
				allocs := testing.AllocsPerRun(1, func() { err = parse(b) })
				var field *fieldError
				if !errors.As(err, &field) {
					t.Errorf("error %v, want a fieldError", err)
				}
				if err != nil && len(err.Error()) > 200 {
					t.Errorf("error of %d bytes", len(err.Error()))
				}
				if allocs > 8 {
					t.Errorf("%v allocations", allocs)
				}
			})
		}
	}
}

var goodTexts = map[string]string{
	"stat":     "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 20\nnr_throttled 13\nthrottled_usec 700\nnr_bursts 0\nburst_usec 0\n",
	"stat v1":  "nr_periods 20\nnr_throttled 3\nthrottled_time 700\nnr_bursts 0\nburst_time 0\n",
	"max":      "50000 100000\n",
	"quota v1": "-1\n",
	"period":   "100000\n",
	"burst":    "0\n",
	"usage v1": "123456789\n",
	"pressure": "some avg10=0.00 avg60=1.50 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=45\n",
	"proc":     "cpu  100 20 3 9999 8888 4 5 7777 100 20\ncpu0 1 1 1 1\n",
}

var parsers = map[string]func([]byte) error{
	"stat":     func(b []byte) error { _, err := parseStat(b); return err },
	"stat v1":  func(b []byte) error { _, err := parseStatV1(b); return err },
	"max":      func(b []byte) error { _, err := parseMax(b); return err },
	"quota v1": func(b []byte) error { _, err := parseQuotaV1(b); return err },
	"period":   func(b []byte) error { _, err := parsePeriodV1(b); return err },
	"burst":    func(b []byte) error { _, err := parseBurst(b); return err },
	"usage v1": func(b []byte) error { _, err := parseUsageV1(b); return err },
	"pressure": func(b []byte) error { _, err := parsePressure(b); return err },
	"proc":     func(b []byte) error { _, err := parseProcStat(b); return err },
}

func checkParse[T comparable](t *testing.T, got, want T, err error, wantErr, reason string) {
	t.Helper()
	if wantErr == "" && err != nil || wantErr != "" && (err == nil || err.Error() != wantErr) {
		t.Fatalf("error %v, want %q (%s)", err, wantErr, reason)
	}
	if got != want {
		t.Errorf("got %+v, want %+v (%s)", got, want, reason)
	}
}

// seed gives a fuzz test every text that the tables know.
func seed(f *testing.F) {
	for _, text := range goodTexts {
		f.Add([]byte(text))
		f.Add([]byte(strings.ReplaceAll(text, "\n", "\r\n")))
		for i := range text { // cut anywhere
			f.Add([]byte(text[:i]))
		}
	}
	for _, text := range oddTexts {
		f.Add([]byte(text[:min(len(text), 1<<12)]))
	}
	f.Add([]byte("usage_usec 0\n\rnr_periods 10\n")) // a carriage return belongs to the end of a line only
	for _, number := range []string{"-1", "max", "9223372036854775808", "18446744073709551616", "1e9", "0x10", "+5", "00"} {
		f.Add([]byte("usage_usec " + number + "\nnr_periods " + number + "\n"))
		f.Add([]byte(number + " " + number + "\n"))
		f.Add([]byte("some total=" + number + "\nfull total=" + number + "\n"))
	}
}

func FuzzStat(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseStat(b)
		checkFieldError(t, err)
		if _, err := parseStatV1(b); err != nil {
			checkFieldError(t, err)
		}
		if err != nil {
			return
		}
		// A slow reader that agrees on every text the fast one takes.
		for field, value := range map[string]*big.Int{
			"usage_usec": big.NewInt(int64(got.Usage / us)), "throttled_usec": big.NewInt(int64(got.ThrottledTime / us)),
			"nr_periods": new(big.Int).SetUint64(got.Periods), "nr_throttled": new(big.Int).SetUint64(got.Throttled),
		} {
			want := new(big.Int)
			for _, line := range strings.Split(string(b), "\n") {
				line = strings.TrimLeft(strings.TrimRight(line, " \t\r"), " \t")
				if rest, ok := strings.CutPrefix(line, field); ok && rest != "" && strings.ContainsAny(rest[:1], " \t") {
					want.SetString(strings.Trim(rest, " \t"), 10)
				}
			}
			if want.Cmp(value) != 0 {
				t.Errorf("%s: %v, want %v", field, value, want)
			}
		}
	})
}

func FuzzMax(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseMax(b)
		checkFieldError(t, err)
		if err == nil && (q.Limit < 0 || q.Period <= 0 || q.Limit%us != 0 || q.Burst != 0) {
			t.Errorf("quota %+v", q)
		}
		if limit, err := parseQuotaV1(b); err == nil && limit < 0 {
			t.Errorf("limit %v", limit)
		}
		if period, err := parsePeriodV1(b); err == nil && period <= 0 {
			t.Errorf("period %v", period)
		}
	})
}

func FuzzPressure(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePressure(b)
		checkFieldError(t, err)
		if err == nil != p.Known || p.Some < 0 || p.Full < 0 || p.Some > math.MaxInt64-999 && p.Some%us != 0 {
			t.Errorf("pressure %+v, error %v", p, err)
		}
		if usage, err := parseProcStat(b); err == nil && usage < 0 {
			t.Errorf("usage %v", usage)
		}
	})
}

func checkFieldError(t *testing.T, err error) {
	t.Helper()
	var field *fieldError
	if err != nil && (!errors.As(err, &field) || field.Field == "" || len(err.Error()) > 200) {
		t.Errorf("error %v", err)
	}
}
