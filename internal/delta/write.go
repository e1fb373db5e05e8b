package delta

import (
	"encoding/binary"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Writer collects values. The zero value is ready.
type Writer struct {
	Bytes []byte

	clock clock
}

// clock is the last time that was written or read, which the next one is near to.
type clock struct{ wall, reading int64 }

// Marks before a value that may be absent or unchanged.
const (
	same    = 0 // as before
	absent  = 1 // nil
	present = 2 // and, for slices, maps and strings, the length
)

// Marks of a time.
const (
	noTime      = 0 // the zero time
	wallTime    = 1
	readingTime = 2 // with a reading of the monotonic clock
)

func (w *Writer) uint(v uint64) { w.Bytes = binary.AppendUvarint(w.Bytes, v) }

func (w *Writer) int(v int64) { w.Bytes = binary.AppendVarint(w.Bytes, v) }

// Uint writes a number.
func (w *Writer) Uint(v uint64) { w.uint(v) }

// span writes nanoseconds, which mostly are whole microseconds: the last bit says whether they are.
func (w *Writer) span(nanos int64) {
	zigzag := func(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }
	if micros := nanos / nanosInMicro; nanos%nanosInMicro == 0 {
		w.uint(zigzag(micros) << 1)
		return
	}
	w.uint(1)
	w.int(nanos)
}

const nanosInMicro = 1000

// String writes a text.
func (w *Writer) String(v string) {
	w.uint(uint64(len(v)))
	w.Bytes = append(w.Bytes, v...)
}

// write writes a value, and says whether it differs from the one before. Where it does not, a struct that it is a field
// of takes back what was written.
func (w *Writer) write(k *kind, before, v unsafe.Pointer) (changed bool) {
	switch k.form {
	case aTime:
		return w.time(*(*time.Time)(before), *(*time.Time)(v))
	case aDuration:
		d := loadInt(k, v) - loadInt(k, before)
		w.span(d)
		return d != 0
	case anInt:
		d := loadInt(k, v) - loadInt(k, before)
		w.int(d)
		return d != 0
	case aUint:
		d := loadUint(k, v) - loadUint(k, before)
		w.int(int64(d))
		return d != 0
	case aFloat:
		d := loadFloat(k, v) ^ loadFloat(k, before)
		w.uint(bits.ReverseBytes64(d))
		return d != 0
	case aBool:
		x := *(*uint8)(v)
		w.Bytes = append(w.Bytes, x)
		return x != *(*uint8)(before)
	case aString:
		return w.text(*(*string)(before), *(*string)(v))
	case aStruct:
		return w.fields(k, before, v)
	case aSlice:
		return w.slice(k, before, v)
	case aPointer:
		return w.pointer(k, before, v)
	}
	return w.mapping(k, before, v)
}

// sameMemory says whether two values are the same for sure, by their bytes: what differs in memory alone, such as padding,
// is found by writing.
func sameMemory(k *kind, a, b unsafe.Pointer) bool {
	return unsafe.String((*byte)(a), k.size) == unsafe.String((*byte)(b), k.size)
}

func (w *Writer) text(before, v string) (changed bool) {
	if v == before {
		w.uint(same)
		return false
	}
	w.uint(present + uint64(len(v)))
	w.Bytes = append(w.Bytes, v...)
	return true
}

// fields writes a struct: a bit for each field, whether it has changed, and the fields that have.
func (w *Writer) fields(k *kind, before, v unsafe.Pointer) (changed bool) {
	mask := len(w.Bytes)
	for range maskBytes(k) {
		w.Bytes = append(w.Bytes, 0)
	}
	for i := range k.fields {
		f := &k.fields[i]
		was, now := unsafe.Add(before, f.offset), unsafe.Add(v, f.offset)
		if sameMemory(f.kind, was, now) {
			continue
		}
		end, clock := len(w.Bytes), w.clock
		if !w.write(f.kind, was, now) {
			w.Bytes, w.clock = w.Bytes[:end], clock
			continue
		}
		w.Bytes[mask+i/8] |= 1 << (i % 8)
		changed = true
	}
	return changed
}

func maskBytes(k *kind) int { return (len(k.fields) + 7) / 8 }

func (w *Writer) slice(k *kind, before, v unsafe.Pointer) (changed bool) {
	was, now := *(*header)(before), *(*header)(v)
	switch {
	case now.data == was.data && now.len == was.len:
		w.uint(same)
		return false
	case now.data == nil:
		w.uint(absent)
		return true
	}
	w.uint(present + uint64(now.len))
	changed = was.data == nil || now.len != was.len
	for i := range now.len {
		if w.write(k.elem, was.at(k.elem, i), now.at(k.elem, i)) {
			changed = true
		}
	}
	return changed
}

func (w *Writer) pointer(k *kind, before, v unsafe.Pointer) (changed bool) {
	was, now := *(*unsafe.Pointer)(before), *(*unsafe.Pointer)(v)
	switch {
	case now == was:
		w.uint(same)
		return false
	case now == nil:
		w.uint(absent)
		return true
	case was == nil:
		w.uint(present)
		w.write(k.elem, k.elem.zero, now)
		return true
	}
	w.uint(present)
	return w.write(k.elem, was, now)
}

// mapping writes a map by its sorted keys.
func (w *Writer) mapping(k *kind, before, v unsafe.Pointer) (changed bool) {
	was, now := reflect.NewAt(k.typ, before).Elem(), reflect.NewAt(k.typ, v).Elem()
	switch {
	case now.UnsafePointer() == was.UnsafePointer():
		w.uint(same)
		return false
	case now.IsNil():
		w.uint(absent)
		return true
	}
	keys := now.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	w.uint(present + uint64(len(keys)))
	changed = was.IsNil() || was.Len() != len(keys)
	for _, key := range keys {
		w.String(key.String())
		if w.write(k.elem, entry(k, was, key), entry(k, now, key)) || !was.MapIndex(key).IsValid() {
			changed = true
		}
	}
	return changed
}

// entry is a copy of the value of a key; that of a key that the map lacks is zero.
func entry(k *kind, m, key reflect.Value) unsafe.Pointer {
	v := m.MapIndex(key)
	if !v.IsValid() {
		return k.elem.zero
	}
	held := reflect.New(k.elem.typ)
	held.Elem().Set(v)
	return held.UnsafePointer()
}

// time writes a time as the difference from the last one: readings of files follow each other closely, and the wall
// clock goes on with the monotonic one.
func (w *Writer) time(before, t time.Time) (changed bool) {
	changed = *(*instant)(unsafe.Pointer(&t)) != *(*instant)(unsafe.Pointer(&before))
	if t.IsZero() {
		w.uint(noTime)
		return changed
	}
	wall, reading, hasReading := partsOf(t)
	if !hasReading {
		w.uint(wallTime)
		w.int(wall - w.clock.wall)
		w.clock.wall = wall
		return changed
	}
	w.uint(readingTime)
	passed := reading - w.clock.reading
	w.span(passed)
	w.span(wall - w.clock.wall - passed)
	w.clock = clock{wall, reading}
	return changed
}

// header is the layout of a slice (reflect.SliceHeader, with a pointer that keeps its memory alive).
type header struct {
	data     unsafe.Pointer
	len, cap int
}

// at is the element; zero beyond the end.
func (h header) at(elem *kind, i int) unsafe.Pointer {
	if i >= h.len {
		return elem.zero
	}
	return unsafe.Add(h.data, uintptr(i)*elem.size)
}

func loadInt(k *kind, p unsafe.Pointer) int64 {
	switch k.size {
	case 1:
		return int64(*(*int8)(p))
	case 2:
		return int64(*(*int16)(p))
	case 4:
		return int64(*(*int32)(p))
	}
	return *(*int64)(p)
}

func loadUint(k *kind, p unsafe.Pointer) uint64 {
	switch k.size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

// loadFloat is the bits of a number.
func loadFloat(k *kind, p unsafe.Pointer) uint64 {
	if k.size == 4 {
		return uint64(math.Float32bits(*(*float32)(p)))
	}
	return math.Float64bits(*(*float64)(p))
}
