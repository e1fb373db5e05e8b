package blastradius

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)

var trial = Canary{Percent: 20, Grace: 10 * time.Minute, HoldOff: 24 * time.Hour}

// workload is n replicas, a minute apart in age.
func workload(n int) []Replica {
	list := make([]Replica, n)
	for i := range list {
		list[i] = Replica{ID: fmt.Sprint("uid-", i), Name: fmt.Sprint("web-", i), Created: start.Add(time.Duration(i-n) * time.Minute)}
	}
	return list
}

func resized(list []Replica) (n int) {
	for _, r := range list {
		if !r.Resized.IsZero() {
			n++
		}
	}
	return n
}

// TestAtMostTheShare plays workloads of random size, whose replicas are resized in random order as soon as
// they may be.
func TestAtMostTheShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	released := 0
	for range 300 {
		c := trial
		c.Percent = 1 + rng.IntN(100)
		list := workload(1 + rng.IntN(40))
		share := 0
		for 100*share < c.Percent*len(list) { // the least number that is no less than the share
			share++
		}
		now := start
		for range 60 {
			now = now.Add(time.Duration(1+rng.IntN(60)) * time.Second)
			v := c.Judge(list, now)
			r := &list[rng.IntN(len(list))]
			if v.Allows(r.ID, !r.Resized.IsZero()) && r.Resized.IsZero() {
				r.Resized = now
			}
			if n := resized(list); v.Stage == Trial && n > share {
				t.Fatalf("%d of %d replicas are resized before the release, with a share of %d%%", n, len(list), c.Percent)
			}
			if v.Stage == Stopped {
				t.Fatalf("stopped without harm: %+v", list)
			}
			if v.Stage == Released && share < len(list) {
				released++
			}
		}
	}
	if released == 0 {
		t.Error("no workload was released: the test shows nothing")
	}
}

func TestStopsOnHarm(t *testing.T) {
	at := start.Add(time.Minute)
	for name, c := range map[string]struct {
		harm  func(list []Replica)
		stops bool
	}{
		"none":                        {func([]Replica) {}, false},
		"a canary is not Ready":       {func(l []Replica) { l[0].UnreadySince = at }, true},
		"a canary restarted":          {func(l []Replica) { l[1].FailedAt = []time.Time{at} }, true},
		"it restarted long before":    {func(l []Replica) { l[1].FailedAt = []time.Time{start.Add(-time.Hour)} }, false},
		"it was not Ready before":     {func(l []Replica) { l[0].UnreadySince = start.Add(-time.Minute) }, false},
		"another is not Ready":        {func(l []Replica) { l[5].UnreadySince = at }, false},
		"all are not Ready":           {func(l []Replica) { troubled(l, at) }, false},
		"all canaries, half of all":   {func(l []Replica) { troubled(l[:5], at) }, true},
		"a canary, half of the rest":  {func(l []Replica) { l[0].UnreadySince = at; troubled(l[2:6], at) }, false},
		"a canary, and one that came": {func(l []Replica) { l[0].UnreadySince, l[9].UnreadySince, l[9].Created = at, at, at }, true},
	} {
		list := workload(10)
		list[0].Resized, list[1].Resized = start, start
		c.harm(list)
		now := at.Add(time.Second)
		v := trial.Judge(list, now)
		if got := v.Stage == Stopped; got != c.stops {
			t.Errorf("%s: stage %s, stopped is wanted to be %v", name, v.Stage, c.stops)
		}
		if !c.stops {
			continue
		}
		for i := range list { // as the status records it; the harm may be over
			list[i].Stopped, list[i].UnreadySince, list[i].FailedAt = v.StoppedAt, time.Time{}, nil
		}
		if v := trial.Judge(list, at.Add(trial.HoldOff-time.Second)); v.Stage != Stopped || v.Allows("uid-0", true) {
			t.Errorf("%s: stage %s within the hold-off", name, v.Stage)
		}
		for i := range list { // they were restored
			list[i].Resized = time.Time{}
		}
		if v := trial.Judge(list, now.Add(trial.HoldOff)); v.Stage != Trial || !v.Allows("uid-0", false) || v.Allows("uid-5", false) {
			t.Errorf("%s: %+v after the hold-off: want another trial", name, v)
		}
	}
}

// TestAStopIsDatedByItsHarm: news of harm may be late, and the clock of a kubelet may be ahead.
func TestAStopIsDatedByItsHarm(t *testing.T) {
	now := start.Add(9 * time.Minute)
	for name, c := range map[string]struct {
		unready, ended time.Time
		holdOff        time.Duration
		want           time.Time
	}{
		"not Ready a minute ago":  {now.Add(-time.Minute), time.Time{}, time.Hour, now.Add(-time.Minute)},
		"ended before that":       {now.Add(-time.Minute), now.Add(-2 * time.Minute), time.Hour, now.Add(-time.Minute)},
		"ended after that":        {now.Add(-3 * time.Minute), now.Add(-2 * time.Minute), time.Hour, now.Add(-2 * time.Minute)},
		"yet to come":             {now.Add(time.Minute), time.Time{}, time.Hour, now},
		"the hold-off is shorter": {now.Add(-time.Minute), time.Time{}, time.Minute, now},
	} {
		rule := trial
		rule.HoldOff = c.holdOff
		list := workload(10)
		list[0].Resized, list[0].UnreadySince, list[1].Resized = start, c.unready, start
		if !c.ended.IsZero() {
			list[1].FailedAt = []time.Time{c.ended}
		}
		v := rule.Judge(list, now)
		if v.Stage != Stopped || !v.StoppedAt.Equal(c.want) || !v.FoundAt.Equal(now) || !v.Until.Equal(c.want.Add(c.holdOff)) {
			t.Errorf("%s: %+v, want a stop at %v", name, v, c.want)
		}
	}
}

func troubled(list []Replica, at time.Time) {
	for i := range list {
		list[i].UnreadySince = at
	}
}

func TestReleasesWithoutHarm(t *testing.T) {
	list := workload(10)
	if v := trial.Judge(list, start.Add(time.Hour)); v.Stage != Trial || !v.Until.IsZero() {
		t.Errorf("%+v before any resize: nothing has been proved", v)
	}
	list[0].Resized = start
	v := trial.Judge(list, start.Add(trial.Grace-time.Second))
	if v.Stage != Trial || !v.Until.Equal(start.Add(trial.Grace)) || v.Allows("uid-2", false) || !v.Allows("uid-1", false) {
		t.Errorf("%+v within the grace", v)
	}
	list[1].Resized = start.Add(time.Minute) // its grace counts as well
	if v := trial.Judge(list, start.Add(trial.Grace)); v.Stage != Trial {
		t.Errorf("%+v within the grace of the second", v)
	}
	if v := trial.Judge(list, start.Add(trial.Grace+time.Minute)); v.Stage != Released || !v.Allows("uid-9", false) {
		t.Errorf("%+v after the grace", v)
	}
	list = append(list, Replica{ID: "new", Name: "new", Created: start.Add(time.Hour)})
	if v := trial.Judge(list, start.Add(time.Hour)); v.Stage != Released {
		t.Errorf("%+v after a scale-out: want what was proved to hold", v)
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		list := workload(2 + rng.IntN(20))
		for i := range list {
			switch rng.IntN(4) {
			case 0:
				list[i].Resized = start.Add(time.Duration(rng.IntN(600)) * time.Second)
			case 1:
				list[i].UnreadySince = start.Add(time.Duration(rng.IntN(600)) * time.Second)
			case 2:
				list[i].Created = start
			}
		}
		now := start.Add(time.Duration(rng.IntN(1200)) * time.Second)
		want := trial.Judge(list, now)
		shuffled := slices.Clone(list)
		rng.Shuffle(len(list), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if got := trial.Judge(shuffled, now); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v for\n%+v", got, want, list)
		}
	}
}

func TestSpreadCountsWorkloads(t *testing.T) {
	s := Spread{Workloads: 3, Window: 30 * time.Minute}
	var tally Tally
	now := start
	stops := func() bool { return s.Stops(tally.Harmed(s, now, time.Time{})) }
	for range 5 {
		tally.Note("shop/Deployment/web", now)
	}
	tally.Note("shop/Deployment/api", now)
	if stops() {
		t.Error("two workloads stop the installation")
	}
	now = now.Add(29 * time.Minute)
	tally.Note("other/Deployment/web", now)
	if !stops() {
		t.Error("three workloads do not stop the installation")
	}
	if got := tally.Harmed(s, now, now.Add(-time.Minute)); !slices.Equal(got, []string{"other/Deployment/web"}) {
		t.Errorf("harmed since the last resume: %v", got)
	}
	if now = now.Add(2 * time.Minute); stops() {
		t.Error("harm from before the window counts")
	}
	if (Spread{}).Stops([]string{"a", "b", "c"}) {
		t.Error("a threshold of 0 stops the installation")
	}
}

// TestWindowsLikeACalendar compares with a walk over the minutes, over days on which clocks are set as well.
func TestWindowsLikeACalendar(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	zones := []string{"", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"}
	for range 40 {
		var parts []string
		for range 1 + rng.IntN(2) {
			days := []string{"*", "Mon-Fri", "Sat,Sun", "Fri-Mon", "Wed"}[rng.IntN(5)]
			parts = append(parts, fmt.Sprintf("%s %02d:%02d-%02d:%02d %s",
				days, rng.IntN(24), rng.IntN(60), rng.IntN(24), rng.IntN(60), zones[rng.IntN(len(zones))]))
		}
		text := strings.Join(parts, "; ")
		ws, err := ParseWindows(text)
		if err != nil {
			t.Fatal(err)
		}
		// Clocks are set on days of March, April, October and November.
		now := time.Date(2026, []time.Month{1, 3, 4, 9, 10, 11}[rng.IntN(6)], 1+rng.IntN(31), rng.IntN(24), rng.IntN(60), 0, 0, time.UTC)
		closed, until := ws.Closed(now)
		if want := calendar(t, text, now); closed != want {
			t.Fatalf("%s at %v: closed %v, want %v", text, now, closed, want)
		}
		next := now
		for end := now.AddDate(0, 0, 8); next.Before(end) && calendar(t, text, next) == closed; {
			next = next.Add(time.Minute)
		}
		if calendar(t, text, next) == closed {
			next = time.Time{}
		}
		if !until.Equal(next) {
			t.Fatalf("%s at %v: changes at %v, want %v", text, now, until, next)
		}
	}
}

var places = func() map[string]*time.Location {
	all := map[string]*time.Location{}
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland"} {
		all[name], _ = time.LoadLocation(name)
	}
	return all
}()

// calendar says by the text of windows whether a time is in one.
func calendar(t *testing.T, text string, at time.Time) bool {
	days := map[string]string{
		"*": "Sun Mon Tue Wed Thu Fri Sat", "Mon-Fri": "Mon Tue Wed Thu Fri", "Sat,Sun": "Sat Sun", "Fri-Mon": "Fri Sat Sun Mon", "Wed": "Wed",
	}
	for _, part := range strings.Split(text, "; ") {
		fields := append(strings.Fields(part), "UTC")
		place := places[fields[2]]
		if place == nil {
			t.Fatalf("no zone %s", fields[2])
		}
		from, to, _ := strings.Cut(fields[1], "-")
		local := at.In(place)
		clock, today := local.Format("15:04"), strings.Contains(days[fields[0]], local.Format("Mon"))
		yesterday := strings.Contains(days[fields[0]], local.AddDate(0, 0, -1).Format("Mon"))
		if from < to && today && clock >= from && clock < to || from >= to && (today && clock >= from || yesterday && clock < to) {
			return true
		}
	}
	return false
}

func TestParseWindows(t *testing.T) {
	for _, good := range []string{"", "  ", "Mon-Fri 09:00-18:00 Europe/Berlin", "* 00:00-24:00", "Sat,Sun 22:00-06:00; Wed 12:00-13:00 UTC"} {
		if _, err := ParseWindows(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, names := range map[string]string{
		"Mon-Fri": "1 words", "Mo 09:00-10:00": "days Mo", "Mon 9-18": `"9"`, "Mon 9:00-18:00": `"9:00"`, "Mon 09:00-25:00": `"25:00"`,
		"Mon 24:00-24:00": "24:00", "Mon 09:00-18:00 Mars": "time zone Mars", "Mon 09:00-18:00 Local": "Local",
		"Mon 09:00-18:00;": "0 words", "Mon 09:00-18:00 UTC x": "4 words", "Mon 09:00": `""`,
	} {
		if _, err := ParseWindows(bad); err == nil || !strings.Contains(err.Error(), names) || !strings.Contains(err.Error(), "Europe/Berlin") {
			t.Errorf("%q: error %v: want it to name %s and the form", bad, err, names)
		}
	}
	long := strings.Repeat("Mon 09:00-10:00;", maxWindows-1) + "Mon 09:00-10:00"
	if _, err := ParseWindows(long); err != nil {
		t.Errorf("%d windows: %v", maxWindows, err)
	}
	for _, text := range []string{long + ";Mon 09:00-10:00", "Mon 09:00-10:00" + strings.Repeat(" ", maxText)} {
		if _, err := ParseWindows(text); err == nil || !strings.Contains(err.Error(), "at most 20 in 2048") {
			t.Errorf("a list of %d bytes: error %v: want its bounds", len(text), err)
		}
	}
	ws, _ := ParseWindows("* 00:00-24:00")
	if closed, until := ws.Closed(start); !closed || !until.IsZero() {
		t.Errorf("always: closed %v until %v", closed, until)
	}
}

// TestLateNewsOfHarm: harm within the grace stops a workload also where it is seen just after the release; harm after the
// release, and news that are later than that, do not.
func TestLateNewsOfHarm(t *testing.T) {
	end := start.Add(trial.Grace)
	for name, c := range map[string]struct {
		harm, now time.Time
		want      Stage
	}{
		"before the release, seen at it":    {end.Add(-time.Second), end, Stopped},
		"before the release, seen after it": {end.Add(-time.Second), end.Add(lateNews - time.Second), Stopped},
		"before the release, seen too late": {end.Add(-time.Second), end.Add(lateNews), Released},
		"after the release":                 {end, end.Add(time.Second), Released},
	} {
		list := workload(10)
		list[0].Resized, list[0].UnreadySince = start, c.harm
		if v := trial.Judge(list, c.now); v.Stage != c.want {
			t.Errorf("harm %s: stage %s, want %s", name, v.Stage, c.want)
		}
	}
	list := workload(10) // trouble that all have, and the others are resized after the release
	troubled(list, end.Add(-time.Second))
	list[0].Resized = start
	for i := range list[2:] {
		list[2+i].Resized = end
	}
	if v := trial.Judge(list, end.Add(time.Second)); v.Stage != Released {
		t.Errorf("stage %s after trouble of all replicas, want %s", v.Stage, Released)
	}
}
