package blastradius

import (
	"fmt"
	"slices"
	"strings"
	"time"

	_ "time/tzdata" // images and laptops may have no time zones
)

// Windows are windows of time in which nothing is changed, each week. The zero value is none.
type Windows []window

// window is a part of some days of the week, by the clock of a place. One that ends no later than it begins ends on
// the next day.
type window struct {
	days     [7]bool // Sunday is 0
	from, to int     // minutes since midnight; to is at most 24 h
	place    *time.Location
}

const windowForm = `want windows such as "Mon-Fri 09:00-18:00 Europe/Berlin", separated by ";", with days as Mon-Fri, Sat,Sun or *, ` +
	`and a time zone of the IANA database, or none for UTC`

// maxWindows and maxText bound a list of windows: each look at a node reads it, and compares every two.
const (
	maxWindows = 20
	maxText    = 2048
)

// ParseWindows reads windows as users write them; "" is none. The error names the window that cannot be read.
func ParseWindows(text string) (Windows, error) {
	var list Windows
	switch n := strings.Count(text, ";") + 1; {
	case strings.TrimSpace(text) == "":
		return nil, nil
	case n > maxWindows, len(text) > maxText:
		return nil, fmt.Errorf("%d windows in %d bytes: want at most %d in %d", n, len(text), maxWindows, maxText)
	}
	for part := range strings.SplitSeq(text, ";") {
		w, err := parseWindow(strings.Fields(part))
		if err != nil {
			return nil, fmt.Errorf("%q: %w: %s", strings.TrimSpace(part), err, windowForm)
		}
		list = append(list, w)
	}
	return list, nil
}

func parseWindow(fields []string) (w window, err error) {
	if len(fields) != 2 && len(fields) != 3 {
		return w, fmt.Errorf("%d words", len(fields))
	}
	if w.days, err = parseDays(fields[0]); err != nil {
		return w, err
	}
	from, to, _ := strings.Cut(fields[1], "-")
	if w.from, err = parseMinute(from); err != nil {
		return w, err
	}
	if w.to, err = parseMinute(to); err != nil {
		return w, err
	}
	if w.from == day {
		return w, fmt.Errorf("a window cannot begin at 24:00")
	}
	w.place = time.UTC
	if len(fields) == 3 {
		if w.place, err = time.LoadLocation(fields[2]); err != nil || fields[2] == "Local" {
			return w, fmt.Errorf("time zone %s is unknown", fields[2])
		}
	}
	return w, nil
}

var dayNames = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// parseDays reads Mon-Fri, Sat,Sun or *. A range may go over the end of the week.
func parseDays(text string) (days [7]bool, err error) {
	if text == "*" {
		text = "Sun-Sat"
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, to := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if from < 0 || to < 0 {
			return days, fmt.Errorf("days %s are unknown", part)
		}
		for d := from; ; d = (d + 1) % 7 {
			if days[d] = true; d == to {
				break
			}
		}
	}
	return days, nil
}

const day = 24 * 60 // in minutes

// parseMinute reads a time of day, 00:00 to 24:00.
func parseMinute(text string) (int, error) {
	if text == "24:00" {
		return day, nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fmt.Errorf("%q is no time of day", text)
	}
	return t.Hour()*60 + t.Minute(), nil
}

// Closed says whether nothing may be changed now, and when that changes; zero: never.
func (ws Windows) Closed(now time.Time) (closed bool, until time.Time) {
	closed = ws.contain(now)
	var changes []time.Time
	for _, w := range ws {
		local := now.In(w.place)
		_, jump := local.ZoneBounds()
		changes = append(changes, jump)
		for d := -1; d <= 8; d++ {
			for _, minute := range []int{w.from, w.to} {
				at := time.Date(local.Year(), local.Month(), local.Day()+d, 0, minute, 0, 0, w.place)
				// An hour of the night in which clocks are set back comes twice.
				changes = append(changes, at, at.Add(time.Hour), at.Add(-time.Hour))
			}
		}
	}
	slices.SortFunc(changes, time.Time.Compare)
	for _, at := range changes {
		if at.After(now) && ws.contain(at) != closed {
			return closed, at
		}
	}
	return closed, time.Time{}
}

// contain says whether one of the windows contains a time.
func (ws Windows) contain(at time.Time) bool {
	return slices.ContainsFunc(ws, func(w window) bool {
		local := at.In(w.place)
		minute, weekday := local.Hour()*60+local.Minute(), int(local.Weekday())
		before := w.days[(weekday+6)%7]
		if w.to > w.from {
			return w.days[weekday] && minute >= w.from && minute < w.to
		}
		return w.days[weekday] && minute >= w.from || before && minute < w.to
	})
}
