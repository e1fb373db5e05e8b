package delta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"time"
	"unsafe"
)

// Reader reads what a Writer has collected.
type Reader struct {
	bytes  []byte
	at     int
	budget int // bytes of memory that values may still take
	clock  clock
}

// NewReader reads bytes into values that take at most this memory together.
func NewReader(bytes []byte, memory int) *Reader { return &Reader{bytes: bytes, budget: memory} }

// At is the offset of the next byte.
func (r *Reader) At() int { return r.at }

// More says whether bytes are left.
func (r *Reader) More() bool { return r.at < len(r.bytes) }

var (
	errCut  = errors.New("the bytes end within a value")
	errSize = errors.New("a number is too large for its field")
)

func (r *Reader) uint() (uint64, error) {
	v, n := binary.Uvarint(r.bytes[r.at:])
	if n <= 0 {
		return 0, errCut
	}
	r.at += n
	return v, nil
}

func (r *Reader) int() (int64, error) {
	v, n := binary.Varint(r.bytes[r.at:])
	if n <= 0 {
		return 0, errCut
	}
	r.at += n
	return v, nil
}

func (r *Reader) span() (int64, error) {
	v, err := r.uint()
	switch {
	case err != nil:
		return 0, err
	case v == 1:
		return r.int()
	case v&1 == 1:
		return 0, errSize
	}
	v >>= 1
	micros := int64(v>>1) ^ -int64(v&1)
	if micros > math.MaxInt64/nanosInMicro || micros < math.MinInt64/nanosInMicro {
		return 0, errSize
	}
	return micros * nanosInMicro, nil
}

// Uint reads a number.
func (r *Reader) Uint() (uint64, error) { return r.uint() }

// String reads a text.
func (r *Reader) String() (string, error) {
	n, err := r.uint()
	if err != nil {
		return "", err
	}
	return r.text(n)
}

func (r *Reader) text(n uint64) (string, error) {
	if n > uint64(len(r.bytes)-r.at) {
		return "", errCut
	}
	if err := r.take(int(n)); err != nil {
		return "", err
	}
	s := string(r.bytes[r.at : r.at+int(n)])
	r.at += int(n)
	return s, nil
}

// take takes memory from the budget.
func (r *Reader) take(bytes int) error {
	if r.budget -= bytes; r.budget < 0 {
		return errors.New("the values take more memory than is allowed")
	}
	return nil
}

// mark reads a mark, and the length after present.
func (r *Reader) mark() (mark, length uint64, err error) {
	m, err := r.uint()
	if err != nil || m < present {
		return m, 0, err
	}
	return present, m - present, nil
}

func (r *Reader) read(k *kind, before, v unsafe.Pointer) error {
	switch {
	case k.isTime:
		t, err := r.time()
		*(*time.Time)(v) = t
		return err
	case k.isInt(), k.isUint():
		d, err := r.int64(k)
		if err != nil {
			return err
		}
		if k.isInt() {
			return storeInt(k, v, loadInt(k, before)+d)
		}
		return storeUint(k, v, loadUint(k, before)+uint64(d))
	case k.isFloat():
		x, err := r.uint()
		if err != nil {
			return err
		}
		return storeFloat(k, v, bits.ReverseBytes64(x)^loadFloat(k, before))
	case k.kind == reflect.Bool:
		return r.bool(v)
	case k.kind == reflect.String:
		return r.string(before, v)
	case k.kind == reflect.Struct:
		return r.fields(k, before, v)
	case k.kind == reflect.Slice:
		return r.slice(k, before, v)
	case k.kind == reflect.Pointer:
		return r.pointer(k, before, v)
	}
	return r.mapping(k, before, v)
}

func (r *Reader) int64(k *kind) (int64, error) {
	if k.isSpan {
		return r.span()
	}
	return r.int()
}

func (r *Reader) bool(v unsafe.Pointer) error {
	x, err := r.uint()
	if err != nil {
		return err
	}
	if x > 1 {
		return errSize
	}
	*(*bool)(v) = x == 1
	return nil
}

func (r *Reader) string(before, v unsafe.Pointer) error {
	m, n, err := r.mark()
	switch {
	case err != nil:
		return err
	case m == same:
		*(*string)(v) = *(*string)(before)
		return nil
	}
	s, err := r.text(n)
	*(*string)(v) = s
	return err
}

func (r *Reader) fields(k *kind, before, v unsafe.Pointer) error {
	n := maskBytes(k)
	if n > len(r.bytes)-r.at {
		return errCut
	}
	mask := r.bytes[r.at : r.at+n]
	r.at += n
	for i, f := range k.fields {
		was, now := unsafe.Add(before, f.offset), unsafe.Add(v, f.offset)
		if mask[i/8]&(1<<(i%8)) == 0 {
			reflect.NewAt(f.kind.typ, now).Elem().Set(reflect.NewAt(f.kind.typ, was).Elem())
			continue
		}
		if err := r.read(f.kind, was, now); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) slice(k *kind, before, v unsafe.Pointer) error {
	m, n, err := r.mark()
	switch {
	case err != nil:
		return err
	case m == same:
		*(*header)(v) = *(*header)(before)
		return nil
	case m == absent:
		return nil
	case n > uint64(len(r.bytes)-r.at): // each element takes a byte at least
		return errCut
	}
	if err := r.take(int(n) * int(k.elem.typ.Size())); err != nil {
		return err
	}
	made, was := reflect.MakeSlice(k.typ, int(n), int(n)), *(*header)(before)
	reflect.NewAt(k.typ, v).Elem().Set(made)
	now := *(*header)(v)
	for i := range int(n) {
		if err := r.read(k.elem, was.at(k.elem, i), now.at(k.elem, i)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) pointer(k *kind, before, v unsafe.Pointer) error {
	m, _, err := r.mark()
	was := *(*unsafe.Pointer)(before)
	switch {
	case err != nil:
		return err
	case m == same:
		*(*unsafe.Pointer)(v) = was
		return nil
	case m == absent:
		return nil
	case was == nil:
		was = k.elem.zero.UnsafePointer()
	}
	if err := r.take(int(k.elem.typ.Size())); err != nil {
		return err
	}
	made := reflect.New(k.elem.typ)
	*(*unsafe.Pointer)(v) = made.UnsafePointer()
	return r.read(k.elem, was, made.UnsafePointer())
}

// entrySize is about what an entry of a map takes beside its value.
const entrySize = 48

func (r *Reader) mapping(k *kind, before, v unsafe.Pointer) error {
	m, n, err := r.mark()
	was, now := reflect.NewAt(k.typ, before).Elem(), reflect.NewAt(k.typ, v).Elem()
	switch {
	case err != nil:
		return err
	case m == same:
		now.Set(was)
		return nil
	case m == absent:
		return nil
	case n > uint64(len(r.bytes)-r.at):
		return errCut
	}
	if err := r.take(int(n) * (entrySize + int(k.elem.typ.Size()))); err != nil {
		return err
	}
	now.Set(reflect.MakeMapWithSize(k.typ, int(n)))
	for range n {
		s, err := r.String()
		if err != nil {
			return err
		}
		key, value := reflect.ValueOf(s).Convert(k.typ.Key()), reflect.New(k.elem.typ)
		if err := r.read(k.elem, entry(k, was, key), value.UnsafePointer()); err != nil {
			return err
		}
		now.SetMapIndex(key, value.Elem())
	}
	return nil
}

func (r *Reader) time() (time.Time, error) {
	m, err := r.uint()
	if err != nil || m == noTime {
		return time.Time{}, err
	}
	switch m {
	case wallTime:
		passed, err := r.int()
		r.clock.wall += passed
		return time.Unix(0, r.clock.wall).UTC(), err
	case readingTime:
	default:
		return time.Time{}, fmt.Errorf("%d marks no time", m)
	}
	passed, err := r.span()
	if err != nil {
		return time.Time{}, err
	}
	stepped, err := r.span()
	r.clock.reading += passed
	r.clock.wall += passed + stepped
	return fromParts(r.clock.wall, r.clock.reading), err
}

func storeInt(k *kind, p unsafe.Pointer, v int64) error {
	to := reflect.NewAt(k.typ, p).Elem()
	if to.OverflowInt(v) {
		return errSize
	}
	to.SetInt(v)
	return nil
}

func storeUint(k *kind, p unsafe.Pointer, v uint64) error {
	to := reflect.NewAt(k.typ, p).Elem()
	if to.OverflowUint(v) {
		return errSize
	}
	to.SetUint(v)
	return nil
}

func storeFloat(k *kind, p unsafe.Pointer, v uint64) error {
	if k.kind == reflect.Float32 {
		if v > math.MaxUint32 {
			return errSize
		}
		*(*float32)(p) = math.Float32frombits(uint32(v))
		return nil
	}
	*(*float64)(p) = math.Float64frombits(v)
	return nil
}

// rename replaces the strings of a value.
func rename(k *kind, v unsafe.Pointer, f func(string) string) {
	switch {
	case k.isTime:
	case k.kind == reflect.String:
		*(*string)(v) = f(*(*string)(v))
	case k.kind == reflect.Struct:
		for _, field := range k.fields {
			rename(field.kind, unsafe.Add(v, field.offset), f)
		}
	case k.kind == reflect.Slice:
		for i, h := 0, *(*header)(v); i < h.len; i++ {
			rename(k.elem, h.at(k.elem, i), f)
		}
	case k.kind == reflect.Pointer:
		if p := *(*unsafe.Pointer)(v); p != nil {
			rename(k.elem, p, f)
		}
	case k.kind == reflect.Map:
		renameMap(k, reflect.NewAt(k.typ, v).Elem(), f)
	}
}

func renameMap(k *kind, m reflect.Value, f func(string) string) {
	if m.IsNil() {
		return
	}
	renamed := reflect.MakeMapWithSize(k.typ, m.Len())
	for _, key := range m.MapKeys() {
		value := reflect.New(k.elem.typ)
		value.Elem().Set(m.MapIndex(key))
		rename(k.elem, value.UnsafePointer(), f)
		renamed.SetMapIndex(reflect.ValueOf(f(key.String())).Convert(k.typ.Key()), value.Elem())
	}
	m.Set(renamed)
}
