package delta

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "github.com/mbcas/mbcas/internal/testing/atlength" // a fixed seed in make test
)

type word string

type inner struct {
	at    time.Time
	span  time.Duration
	count uint32
	list  []int16
	of    map[word]float64
}

type outer struct {
	Yes      bool
	small    int8
	large    uint64
	ratio    float64
	half     float32
	Text     word
	inners   []inner
	byName   map[string]inner
	optional *inner
	scratch  *int `delta:"-"` // it may point to what has no codec
}

// exactly compares also what is not exported, and times with their readings of the clock.
var exactly = cmp.Options{
	cmp.AllowUnexported(inner{}, outer{}),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
	cmp.Comparer(func(a, b time.Time) bool {
		aw, ac, ar := partsOf(a)
		bw, bc, br := partsOf(b)
		return a.IsZero() && b.IsZero() || aw == bw && ar == br && (!ar || ac == bc)
	}),
}

func drawTime(t *rapid.T) time.Time {
	wall, clock := rapid.Int64Range(-1<<40, 1<<60).Draw(t, "wall"), rapid.Int64Range(-1<<40, 1<<60).Draw(t, "clock")
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		return time.Time{}
	case 1:
		return time.Unix(0, wall)
	}
	return fromParts(wall, clock)
}

var inners = rapid.Custom(func(t *rapid.T) inner {
	span := rapid.OneOf(rapid.Int64(), rapid.Map(rapid.Int64Range(-1e12, 1e12), func(us int64) int64 { return 1000 * us }))
	i := inner{at: drawTime(t), span: time.Duration(span.Draw(t, "span")), count: rapid.Uint32().Draw(t, "count"), list: rapid.SliceOfN(rapid.Int16(), 0, 3).Draw(t, "list")}
	if rapid.Bool().Draw(t, "has map") {
		i.of = rapid.MapOfN(rapid.Custom(func(t *rapid.T) word { return word(rapid.String().Draw(t, "word")) }), rapid.Float64(), 0, 3).Draw(t, "of")
	}
	return i
})

var outers = rapid.Custom(func(t *rapid.T) outer {
	o := outer{
		Yes: rapid.Bool().Draw(t, "yes"), small: rapid.Int8().Draw(t, "small"), large: rapid.Uint64().Draw(t, "large"),
		ratio: rapid.Float64().Draw(t, "ratio"), half: rapid.Float32().Draw(t, "half"), Text: word(rapid.String().Draw(t, "text")),
	}
	if rapid.Bool().Draw(t, "has inners") {
		o.inners = rapid.SliceOfN(inners, 0, 3).Draw(t, "inners")
		o.byName = rapid.MapOfN(rapid.String(), inners, 0, 3).Draw(t, "by name")
	}
	if rapid.Bool().Draw(t, "has optional") {
		i := inners.Draw(t, "optional")
		o.optional = &i
	}
	return o
})

// TestRoundTrip: values written one after the other are read back exactly, and none is changed by it.
func TestRoundTrip(t *testing.T) {
	c := Must[outer]()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(outers, 1, 5).Draw(t, "values")
		if rapid.Bool().Draw(t, "share") { // as rounds share what has not changed
			last := values[len(values)-1]
			last.small++
			values = append(values, last)
		}
		roundTrip(t, c, values)
	})
}

func roundTrip(t rapid.TB, c *Codec[outer], values []outer) {
	t.Helper()
	var w Writer
	before := new(outer)
	for i := range values {
		c.Write(&w, before, &values[i])
		before = &values[i]
	}
	r, was := NewReader(w.Bytes, 1<<24), new(outer)
	for i := range values {
		v := new(outer)
		if err := c.Read(r, was, v); err != nil {
			t.Fatalf("value %d: %v", i, err)
		}
		if diff := cmp.Diff(values[i], *v, exactly); diff != "" {
			t.Fatalf("value %d (-written +read):\n%s", i, diff)
		}
		was = v
	}
	if r.More() {
		t.Fatalf("%d bytes are left", len(w.Bytes)-r.At())
	}
}

// TestClock: what is read tells the same durations, also where the wall clock was set back in between.
func TestClock(t *testing.T) {
	type pair struct{ A, B time.Time }
	codec := Must[pair]()
	now := time.Now()
	later := fromParts(now.Add(-time.Hour).UnixNano(), func() int64 { _, clock, _ := partsOf(now); return clock + 7 }())
	var w Writer
	codec.Write(&w, new(pair), &pair{now, later})
	var got pair
	if err := codec.Read(NewReader(w.Bytes, 1<<20), new(pair), &got); err != nil {
		t.Fatal(err)
	}
	if d := got.B.Sub(got.A); d != 7 {
		t.Errorf("7 ns by the monotonic clock became %v", d)
	}
	if d := got.B.Round(0).Sub(got.A.Round(0)); d != -time.Hour {
		t.Errorf("an hour back by the wall clock became %v", d)
	}
}

// TestLeftOut: a field that is left out is read as zero.
func TestLeftOut(t *testing.T) {
	c := Must[outer]()
	var w Writer
	var got outer
	c.Write(&w, new(outer), &outer{small: 3, scratch: new(int)})
	if err := c.Read(NewReader(w.Bytes, 1<<20), new(outer), &got); err != nil || got.small != 3 || got.scratch != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestSmall: a value that is as before takes a bit for each field, and one that goes on as before a few.
func TestSmall(t *testing.T) {
	c := Must[outer]()
	v := outer{large: 1 << 50, inners: []inner{{count: 7}, {count: 8}}, byName: map[string]inner{"a": {count: 3}}}
	var w Writer
	if c.Write(&w, &v, &v); len(w.Bytes) != 2 { // a bit for each field
		t.Errorf("%d bytes for what is as before", len(w.Bytes))
	}
	next := v
	next.inners = []inner{{count: 7}, {count: 9}}
	w = Writer{}
	if c.Write(&w, &v, &next); len(w.Bytes) > 20 {
		t.Errorf("%d bytes for one changed number", len(w.Bytes))
	}
}

// TestSchemaNamesFields: the schema names fields and kinds, and not what is left out.
func TestSchemaNamesFields(t *testing.T) {
	if got, want := Must[inner]().Schema(), "{at:time span:duration count:uint32 list:[]int16 of:map float64}"; got != want {
		t.Errorf("schema %s, want %s", got, want)
	}
	if s := Must[outer]().Schema(); strings.Contains(s, "scratch") {
		t.Errorf("%s has a field that is not written", s)
	}
}

type tree struct{ Left, Right *tree }

// TestNoCodec: a type that could not be read back has no codec, and the error names the field.
func TestNoCodec(t *testing.T) {
	_, face := For[struct{ A struct{ F any } }]()
	_, fn := For[[]func()]()
	_, loop := For[tree]()
	_, keys := For[map[int]string]()
	for want, err := range map[string]error{
		"A: F: values of interface {} are not written": face, "values of func() are not written": fn,
		"Left: delta.tree contains itself": loop, "only maps by strings are written": keys,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestRename: all strings are replaced, those in maps and behind pointers, too.
func TestRename(t *testing.T) {
	v := outer{
		Text: "a", byName: map[string]inner{"b": {of: map[word]float64{"c": 1}}}, optional: &inner{of: map[word]float64{"d": 2}},
	}
	Must[outer]().Rename(&v, strings.ToUpper)
	want := outer{
		Text: "A", byName: map[string]inner{"B": {of: map[word]float64{"C": 1}}}, optional: &inner{of: map[word]float64{"D": 2}},
	}
	if diff := cmp.Diff(want, v, exactly); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzRead: bytes that were not written by a codec give a value or an error, and not more memory than allowed.
func FuzzRead(f *testing.F) {
	c := Must[outer]()
	var w Writer
	now := time.Now()
	c.Write(&w, new(outer), &outer{
		Text: "text", inners: []inner{{at: now, list: []int16{1, 2}}}, byName: map[string]inner{"a": {at: now.Round(0)}}, optional: &inner{},
	})
	f.Add(w.Bytes)
	f.Fuzz(func(t *testing.T, bytes []byte) {
		r := NewReader(bytes, 1<<16)
		var v outer
		if err := c.Read(r, new(outer), &v); err == nil {
			roundTrip(t, c, []outer{v})
		}
	})
}
