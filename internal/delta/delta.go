// Package delta writes Go values as what differs from an earlier value of the same type, and reads them back
// exactly. It serves recordings of rounds: most of what a round is given is as it was a second before.
//
// A codec is made from a type alone and covers every field, exported or not, so a field that is added later
// cannot be forgotten. A field with the tag `delta:"-"` is left out; what is read has that of the value before, at first zero.
//
// Promises:
//   - What is read is what was written, monotonic clock readings included: TestRoundTrip.
//   - Bytes that no codec wrote give an error, neither a panic nor more memory than the limit: FuzzRead.
//   - Types with the same Schema read each other's values: TestSchemaNamesFields.
package delta

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unsafe"
)

// Codec writes and reads values of a type.
type Codec[T any] struct{ root *kind }

// For makes the codec of a type. Types with interfaces, functions or channels have none, nor have types that contain
// themselves.
func For[T any]() (*Codec[T], error) {
	if !clockLayoutKnown() {
		return nil, errors.New("time.Time of this version of Go has another layout, so that clock readings cannot be recorded")
	}
	k, err := kindOf(reflect.TypeFor[T](), nil)
	if err != nil {
		return nil, err
	}
	return &Codec[T]{k}, nil
}

// Must is For; it panics where the type has no codec.
func Must[T any]() *Codec[T] {
	c, err := For[T]()
	if err != nil {
		panic(err)
	}
	return c
}

// Schema names all fields and their kinds: values can be read by codecs of the same schema.
func (c *Codec[T]) Schema() string {
	var b strings.Builder
	c.root.describe(&b)
	return b.String()
}

// Write appends v to the writer, as what differs from before. Neither is changed.
func (c *Codec[T]) Write(w *Writer, before, v *T) {
	w.write(c.root, unsafe.Pointer(before), unsafe.Pointer(v))
}

// Read reads into v what Write wrote with the same value before. v may share memory with before.
func (c *Codec[T]) Read(r *Reader, before, v *T) error {
	*v = *before
	if err := r.read(c.root, unsafe.Pointer(before), unsafe.Pointer(v)); err != nil {
		return fmt.Errorf("at byte %d: %w", r.at, err)
	}
	return nil
}

// Rename replaces each string in v, keys of maps included, by what f returns for it. v is changed in place.
func (c *Codec[T]) Rename(v *T, f func(string) string) { rename(c.root, unsafe.Pointer(v), f) }

// kind is how a type is laid out.
type kind struct {
	form   form
	typ    reflect.Type
	size   uintptr
	fields []field // of a struct
	elem   *kind   // of a slice, map or pointer
	key    *kind   // of a map
	zero   unsafe.Pointer
}

// form is how values of a kind are written.
type form uint8

const (
	aTime form = iota
	aDuration
	anInt
	aUint
	aFloat
	aBool
	aString
	aStruct
	aSlice
	aPointer
	aMap
)

type field struct {
	name   string
	offset uintptr
	kind   *kind
}

// formOf is the form of a type; ok: it has one.
func formOf(t reflect.Type) (f form, ok bool) {
	switch k := t.Kind(); {
	case t == reflect.TypeFor[time.Time]():
		return aTime, true
	case t == reflect.TypeFor[time.Duration]():
		return aDuration, true
	case k >= reflect.Int && k <= reflect.Int64:
		return anInt, true
	case k >= reflect.Uint && k <= reflect.Uint64:
		return aUint, true
	case k == reflect.Float32 || k == reflect.Float64:
		return aFloat, true
	default:
		f, ok = map[reflect.Kind]form{
			reflect.Bool: aBool, reflect.String: aString, reflect.Struct: aStruct, reflect.Slice: aSlice, reflect.Pointer: aPointer, reflect.Map: aMap,
		}[k]
		return f, ok
	}
}

// kindOf lays a type out; within are the types that contain it.
func kindOf(t reflect.Type, within []reflect.Type) (k *kind, err error) {
	for _, outer := range within {
		if outer == t && t.Kind() == reflect.Struct {
			return nil, fmt.Errorf("%v contains itself", t)
		}
	}
	within = append(within, t)
	k = &kind{typ: t, size: t.Size(), zero: reflect.New(t).UnsafePointer()}
	var ok bool
	if k.form, ok = formOf(t); !ok {
		return nil, fmt.Errorf("values of %v are not written", t)
	}
	switch k.form {
	case aStruct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Tag.Get("delta") == "-" {
				continue
			}
			inner, err := kindOf(f.Type, within)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Name, err)
			}
			k.fields = append(k.fields, field{f.Name, f.Offset, inner})
		}
	case aSlice, aPointer:
		k.elem, err = kindOf(t.Elem(), within)
	case aMap:
		if k.elem, err = kindOf(t.Elem(), within); err == nil {
			if k.key, err = kindOf(t.Key(), within); err == nil && t.Key().Kind() != reflect.String {
				err = fmt.Errorf("%v: only maps by strings are written", t)
			}
		}
	}
	return k, err
}

// describe writes the schema.
func (k *kind) describe(b *strings.Builder) {
	switch k.form {
	case aTime:
		b.WriteString("time")
	case aDuration:
		b.WriteString("duration")
	case aStruct:
		b.WriteByte('{')
		for i, f := range k.fields {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(f.name + ":")
			f.kind.describe(b)
		}
		b.WriteByte('}')
	case aSlice, aMap, aPointer:
		b.WriteString(map[form]string{aSlice: "[]", aMap: "map ", aPointer: "*"}[k.form])
		k.elem.describe(b)
	default:
		b.WriteString(k.typ.Kind().String())
	}
}

// instant is the layout of time.Time (time/time.go): wall has hasClock, 33 bits of seconds since 1885 and 30 of
// nanoseconds; ext is then the reading of the monotonic clock.
type instant struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

const (
	hasClock   = 1 << 63
	nanoBits   = 30
	wallEpoch  = -2682288000 // 1885 in seconds of Unix: what wall counts from
	nanosInSec = 1_000_000_000
)

// clockLayoutKnown checks that a time made from its parts is that time.
func clockLayoutKnown() bool {
	if unsafe.Sizeof(time.Time{}) != unsafe.Sizeof(instant{}) {
		return false
	}
	now := time.Now()
	wall, clock, has := partsOf(now)
	later := fromParts(wall+int64(time.Second), clock+int64(time.Minute))
	return has && fromParts(wall, clock).Equal(now) && later.Sub(now) == time.Minute &&
		later.Round(0).Sub(now.Round(0)) == time.Second
}

// partsOf are the wall clock of a time in nanoseconds of Unix, and the reading of its monotonic clock, if it has one.
func partsOf(t time.Time) (wall, clock int64, hasReading bool) {
	i := (*instant)(unsafe.Pointer(&t))
	return t.UnixNano(), i.ext, i.wall&hasClock != 0
}

// fromParts is a time with a reading of the monotonic clock.
func fromParts(wall, clock int64) (t time.Time) {
	sec, nano := wall/nanosInSec, wall%nanosInSec
	if nano < 0 {
		sec, nano = sec-1, nano+nanosInSec
	}
	i := (*instant)(unsafe.Pointer(&t))
	i.wall, i.ext, i.loc = hasClock|uint64(sec-wallEpoch)<<nanoBits|uint64(nano), clock, time.Local
	return t
}
