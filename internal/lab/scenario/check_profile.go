package scenario

import (
	"reflect"
	"strings"
	"time"
)

// minPiece is how short the parts of squares, bursts and random walks may be: a run takes a step at
// each change.
const minPiece = 10 * time.Millisecond

// checkProfile reports what is wrong with a figure over time that is to lie between 0 and most.
func (r *report) checkProfile(field string, p *Profile, most float64, open opener) {
	kinds := fieldsOf(reflect.TypeFor[Profile]())
	var given []string
	for i, kind := range kinds {
		if !reflect.ValueOf(p).Elem().Field(i).IsNil() {
			given = append(given, kind)
		}
	}
	if len(given) != 1 {
		got := "none"
		if len(given) > 1 {
			got = strings.Join(given, " and ")
		}
		r.add(field, "want a number, or exactly one of %s; it has %s", strings.Join(kinds, ", "), got)
		return
	}
	switch {
	case p.Constant != nil:
		if v := *p.Constant; v < 0 || v > most {
			r.add(field, "want 0 to %g, not %g", most, v)
		}
	case p.Trace != nil:
		r.checkTrace(field+".trace", p.Trace, open)
	default:
		r.checkKind(field+"."+given[0], p, most)
	}
}

// checkKind reports what is wrong with a profile of a kind with fields of its own.
func (r *report) checkKind(field string, p *Profile, most float64) {
	at := func(name string) string { return field + "." + name }
	within := func(name string, v float64) {
		if v < 0 || v > most {
			r.add(at(name), "want 0 to %g, not %g", most, v)
		}
	}
	piece := func(name string, d time.Duration) {
		if d < minPiece {
			r.add(at(name), "want %v or more, not %v", minPiece, d)
		}
	}
	share := func(name string, v float64) {
		if v < 0 || v > 1 {
			r.add(at(name), "want 0 to 1, not %g", v)
		}
	}
	switch {
	case p.Step != nil:
		within("before", p.Step.Before)
		within("after", p.Step.After)
	case p.Ramp != nil:
		within("from", p.Ramp.From)
		within("to", p.Ramp.To)
		if p.Ramp.End <= p.Ramp.Start {
			r.add(at("end"), "%v is not after the start, %v", p.Ramp.End, p.Ramp.Start)
		}
	case p.Square != nil:
		within("low", p.Square.Low)
		within("high", p.Square.High)
		piece("on", p.Square.On)
		piece("off", p.Square.Off)
	case p.Sine != nil:
		within("mean", p.Sine.Mean)
		within("amplitude", p.Sine.Amplitude)
		if p.Sine.Period == 0 {
			r.add(at("period"), "want a time above 0, such as 10s")
		}
		share("phase", p.Sine.Phase)
	case p.Burst != nil:
		b := p.Burst
		within("low", b.Low)
		within("high", b.High)
		piece("length", b.Length)
		share("jitter", b.Jitter)
		if b.Period > 0 && b.Period < b.Length {
			r.add(at("period"), "%v is shorter than the length, %v", b.Period, b.Length)
		}
		if b.Period == 0 && b.Jitter > 0 {
			r.add(at("jitter"), "a single burst has no jitter; set a period, or leave jitter out")
		}
	case p.Noise != nil:
		within("mean", p.Noise.Mean)
		within("stdDev", p.Noise.StdDev)
		if p.Noise.Interval == 0 {
			p.Noise.Interval = time.Second
		}
		piece("interval", p.Noise.Interval)
	}
}

// checkTrace reads the file.
func (r *report) checkTrace(field string, t *Trace, open opener) {
	if t.Scale == 0 && r.lines[field+".scale"] == 0 {
		t.Scale = 1
	}
	if t.Speed == 0 && r.lines[field+".speed"] == 0 {
		t.Speed = 1
	}
	if t.Scale <= 0 || t.Scale > 1e9 {
		r.add(field+".scale", "want a factor above 0 and up to 1e9, not %g", t.Scale)
	}
	if t.Speed <= 0 || t.Speed > 1e5 {
		r.add(field+".speed", "want a factor above 0 and up to 1e5, not %g", t.Speed)
	}
	if t.Format != FormatRequests && t.Format != FormatTimestamped && t.Format != FormatUsage {
		oneOf(r, field+".format", t.Format, Formats)
		return
	}
	if t.File == "" {
		r.add(field+".file", "it is missing; want the path of a trace file")
		return
	}
	in, err := open(t.File)
	if err != nil {
		r.add(field+".file", "%v", err)
		return
	}
	defer in.Close()
	if t.recorded, err = readTrace(t.Format, in); err != nil {
		r.add(field+".file", "%s, read as %s: %v", t.File, t.Format, err)
		return
	}
	length := time.Duration(len(t.recorded.values)) * t.recorded.step
	if t.From >= length {
		r.add(field+".from", "%v is not before the end of the trace, %v", t.From, length)
	}
	if step := time.Duration(float64(t.recorded.step) / max(t.Speed, 1e-9)); t.Speed > 0 && step < time.Millisecond {
		r.add(field+".speed", "at %g a step of the trace takes %v, less than 1ms; make it slower", t.Speed, step)
	}
}
