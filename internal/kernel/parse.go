package kernel

import (
	"bytes"
	"fmt"
	"math"
	"time"
)

// fieldError names the invalid field of a kernel file. The caller adds the path:
// "pod1/cpu.stat: field usage_usec: ...".
type fieldError struct{ Field, Reason string }

func (e *fieldError) Error() string { return fmt.Sprintf("field %s: %s", e.Field, e.Reason) }

func bad(field, reason string) error { return &fieldError{field, reason} }

// The parsers below take a whole file as the kernel prints it. They skip unknown
// fields, retain nothing of the input, allocate only for an error and take time
// in proportion to the input. A known field on a line without a line feed is an
// error: the kernel ends every line, so the number may be cut short.

// parseStat reads cpu.stat of v2 (kernel/cgroup/rstat.c, kernel/sched/core.c
// cpu_extra_stat_show). Only usage_usec is required: the others are absent
// where the cpu controller is off, and then zero.
func parseStat(b []byte) (Stat, error) {
	return parseStatLines(b, "usage_usec", "throttled_usec", time.Microsecond)
}

// parseStatV1 reads cpu.stat of v1 (kernel/sched/core.c cpu_cfs_stat_show). It
// has no usage: that is in cpuacct.usage. nr_periods is required.
func parseStatV1(b []byte) (Stat, error) {
	return parseStatLines(b, "nr_periods", "throttled_time", time.Nanosecond)
}

// parseStatLines reads cpu.stat with one required field, and the throttled time in this unit.
func parseStatLines(b []byte, required, throttledTime string, unit time.Duration) (s Stat, err error) {
	found := false
	for len(b) > 0 {
		var l line
		l, b = nextLine(b)
		key, value := cutWord(l.text)
		found = found || string(key) == required
		switch {
		case string(key) == "usage_usec":
			s.Usage, err = l.duration("usage_usec", value, time.Microsecond)
		case string(key) == "nr_periods":
			s.Periods, err = l.number("nr_periods", value)
		case string(key) == "nr_throttled":
			s.Throttled, err = l.number("nr_throttled", value)
		case string(key) == throttledTime:
			s.ThrottledTime, err = l.duration(throttledTime, value, unit)
		}
		if err != nil {
			return Stat{}, err
		}
	}
	if !found {
		return Stat{}, bad(required, "missing")
	}
	return s, nil
}

// parseMax reads cpu.max of v2: "<quota or max> <period>" in microseconds
// (kernel/sched/core.c cpu_max_show).
func parseMax(b []byte) (Quota, error) {
	var q Quota
	var err error
	l, _ := nextLine(b)
	limit, period := cutWord(l.text)
	if string(limit) != "max" {
		if q.Limit, err = l.positive("quota", limit); err != nil {
			return Quota{}, err
		}
	}
	if q.Period, err = l.positive("period", period); err != nil {
		return Quota{}, err
	}
	return q, nil
}

// parseQuotaV1 reads cpu.cfs_quota_us of v1: microseconds, or -1 for none, which is 0 here.
func parseQuotaV1(b []byte) (time.Duration, error) {
	l, _ := nextLine(b)
	if l.ended && string(l.text) == "-1" {
		return 0, nil
	}
	return l.positive("quota", l.text)
}

// parsePeriodV1 reads cpu.cfs_period_us of v1.
func parsePeriodV1(b []byte) (time.Duration, error) {
	l, _ := nextLine(b)
	return l.positive("period", l.text)
}

// parseBurst reads cpu.max.burst of v2 and cpu.cfs_burst_us of v1.
func parseBurst(b []byte) (time.Duration, error) {
	l, _ := nextLine(b)
	return l.duration("burst", l.text, time.Microsecond)
}

// parseUsageV1 reads cpuacct.usage of v1, nanoseconds, as whole microseconds: those are what v2 has, and what
// a recording of the counters has room for.
func parseUsageV1(b []byte) (time.Duration, error) {
	l, _ := nextLine(b)
	usage, err := l.duration("usage", l.text, time.Nanosecond)
	return usage.Truncate(time.Microsecond), err
}

// parsePressure reads cpu.pressure and /proc/pressure/cpu
// (kernel/sched/psi.c psi_show). Kernels before 5.13 print no "full" line.
func parsePressure(b []byte) (Pressure, error) {
	var p Pressure
	for len(b) > 0 {
		var l line
		l, b = nextLine(b)
		kind, rest := cutWord(l.text)
		some := string(kind) == "some"
		if !some && string(kind) != "full" {
			continue
		}
		i := bytes.LastIndex(rest, []byte("total="))
		if i < 0 {
			return Pressure{}, bad("total", "missing")
		}
		total, err := l.duration("total", rest[i+len("total="):], time.Microsecond)
		if err != nil {
			return Pressure{}, err
		}
		if some {
			p.Known, p.Some = true, total
		} else {
			p.Full = total
		}
	}
	if !p.Known {
		return Pressure{}, bad("some", "missing")
	}
	return p, nil
}

// clockTick is the unit of /proc/stat: USER_HZ is 100 on every architecture
// that Kubernetes runs on.
const clockTick = 10 * time.Millisecond

// parseProcStat reads the first line of /proc/stat (fs/proc/stat.c): user, nice,
// system, irq and softirq, in the order of the kernel's columns. Time given to
// guests is inside user and nice; stolen time was not used by this machine.
func parseProcStat(b []byte) (time.Duration, error) {
	l, _ := nextLine(b)
	key, rest := cutWord(l.text)
	if string(key) != "cpu" {
		return 0, bad("cpu", "missing")
	}
	var sum time.Duration
	for column := range 7 {
		var word []byte
		word, rest = cutWord(rest)
		const idle, iowait = 3, 4
		if column == idle || column == iowait {
			continue
		}
		d, err := l.duration("cpu", word, clockTick)
		if err != nil {
			return 0, err
		}
		if sum += d; sum < 0 {
			return 0, bad("cpu", "too large")
		}
	}
	return sum, nil
}

// parseUptime reads the idle time, summed over all CPUs, from /proc/uptime (fs/proc/uptime.c):
// "<seconds since boot> <idle seconds>", each with two decimals. Waiting for IO is not idle here.
func parseUptime(b []byte) (time.Duration, error) {
	l, _ := nextLine(b)
	_, idle := cutWord(l.text)
	seconds, hundredths, found := bytes.Cut(idle, []byte{'.'})
	if !found || len(hundredths) != 2 {
		return 0, bad("idle", "not a number with two decimals")
	}
	s, err := l.duration("idle", seconds, time.Second)
	if err != nil {
		return 0, err
	}
	h, err := l.duration("idle", hundredths, clockTick)
	if err != nil {
		return 0, err
	}
	if s += h; s < 0 {
		return 0, bad("idle", "too large")
	}
	return s, nil
}

// A line of a file; ended says that it has a line feed.
type line struct {
	text  []byte
	ended bool
}

func nextLine(b []byte) (line, []byte) {
	text, rest, ended := bytes.Cut(b, []byte{'\n'})
	return line{bytes.TrimRight(text, " \t\r"), ended}, rest
}

// cutWord splits b after its first word.
func cutWord(b []byte) (word, rest []byte) {
	b = bytes.TrimLeft(b, " \t")
	i := bytes.IndexAny(b, " \t")
	if i < 0 {
		return b, nil
	}
	return b[:i], bytes.TrimLeft(b[i:], " \t")
}

// number is a decimal number of up to 64 bits: digits and nothing else.
func (l line) number(field string, b []byte) (uint64, error) {
	switch {
	case !l.ended:
		return 0, bad(field, "cut short")
	case len(b) == 0:
		return 0, bad(field, "empty")
	}
	var n uint64
	for i, c := range b {
		if c < '0' || c > '9' {
			if i == 0 && c == '-' {
				return 0, bad(field, "negative")
			}
			return 0, bad(field, fmt.Sprintf("not a number: %.20q", b))
		}
		d := uint64(c - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, bad(field, "too large")
		}
		n = n*10 + d
	}
	return n, nil
}

// duration is a number of units, below 292 years.
func (l line) duration(field string, b []byte, unit time.Duration) (time.Duration, error) {
	n, err := l.number(field, b)
	if err != nil {
		return 0, err
	}
	if n > uint64(math.MaxInt64/unit) {
		return 0, bad(field, "too large")
	}
	return time.Duration(n) * unit, nil
}

// positive is a duration in microseconds above zero: the kernel has no quota or
// period of zero.
func (l line) positive(field string, b []byte) (time.Duration, error) {
	d, err := l.duration(field, b, time.Microsecond)
	if err == nil && d == 0 {
		return 0, bad(field, "zero")
	}
	return d, err
}
