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

// read reads a value into v, which is a copy of the one before.
func (r *Reader) read(k *kind, before, v unsafe.Pointer) error {
	switch k.form {
	case aTime:
		t, err := r.time()
		*(*time.Time)(v) = t
		return err
	case aDuration:
		d, err := r.span()
		*(*int64)(v) += d
		return err
	case anInt:
		d, err := r.int()
		if err != nil {
			return err
		}
		return storeInt(k, v, loadInt(k, before)+d)
	case aUint:
		d, err := r.int()
		if err != nil {
			return err
		}
		return storeUint(k, v, loadUint(k, before)+uint64(d))
	case aFloat:
		x, err := r.uint()
		if err != nil {
			return err
		}
		return storeFloat(k, v, bits.ReverseBytes64(x)^loadFloat(k, before))
	case aBool:
		return r.bool(v)
	case aString:
		return r.string(v)
	case aStruct:
		return r.fields(k, before, v)
	case aSlice:
		return r.slice(k, before, v)
	case aPointer:
		return r.pointer(k, before, v)
	}
	return r.mapping(k, before, v)
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

func (r *Reader) string(v unsafe.Pointer) error {
	m, n, err := r.mark()
	if err != nil || m == same {
		return err
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
	for i := range k.fields {
		if mask[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		f := &k.fields[i]
		if err := r.read(f.kind, unsafe.Add(before, f.offset), unsafe.Add(v, f.offset)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) slice(k *kind, before, v unsafe.Pointer) error {
	m, n, err := r.mark()
	switch {
	case err != nil || m == same:
		return err
	case m == absent:
		*(*header)(v) = header{}
		return nil
	case n > uint64(len(r.bytes)-r.at): // each element takes a byte at least
		return errCut
	}
	if err := r.take(int(n) * int(k.elem.size)); err != nil {
		return err
	}
	made, was := reflect.MakeSlice(k.typ, int(n), int(n)), *(*header)(before)
	reflect.Copy(made, reflect.NewAt(k.typ, before).Elem())
	now := header{made.UnsafePointer(), int(n), int(n)}
	*(*header)(v) = now
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
	case err != nil || m == same:
		return err
	case m == absent:
		*(*unsafe.Pointer)(v) = nil
		return nil
	case was == nil:
		was = k.elem.zero
	}
	if err := r.take(int(k.elem.size)); err != nil {
		return err
	}
	made := reflect.New(k.elem.typ)
	made.Elem().Set(reflect.NewAt(k.elem.typ, was).Elem())
	*(*unsafe.Pointer)(v) = made.UnsafePointer()
	return r.read(k.elem, was, made.UnsafePointer())
}

// entrySize is about what an entry of a map takes beside its value.
const entrySize = 48

func (r *Reader) mapping(k *kind, before, v unsafe.Pointer) error {
	m, n, err := r.mark()
	was, now := reflect.NewAt(k.typ, before).Elem(), reflect.NewAt(k.typ, v).Elem()
	switch {
	case err != nil || m == same:
		return err
	case m == absent:
		now.SetZero()
		return nil
	case n > uint64(len(r.bytes)-r.at):
		return errCut
	}
	if err := r.take(int(n) * (entrySize + int(k.elem.size))); err != nil {
		return err
	}
	now.Set(reflect.MakeMapWithSize(k.typ, int(n)))
	for range n {
		s, err := r.String()
		if err != nil {
			return err
		}
		key, value := reflect.ValueOf(s).Convert(k.typ.Key()), reflect.New(k.elem.typ)
		if had := was.MapIndex(key); had.IsValid() {
			value.Elem().Set(had)
		}
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
	fits := true
	switch k.size {
	case 1:
		*(*int8)(p), fits = int8(v), int64(int8(v)) == v
	case 2:
		*(*int16)(p), fits = int16(v), int64(int16(v)) == v
	case 4:
		*(*int32)(p), fits = int32(v), int64(int32(v)) == v
	default:
		*(*int64)(p) = v
	}
	if !fits {
		return errSize
	}
	return nil
}

func storeUint(k *kind, p unsafe.Pointer, v uint64) error {
	fits := true
	switch k.size {
	case 1:
		*(*uint8)(p), fits = uint8(v), uint64(uint8(v)) == v
	case 2:
		*(*uint16)(p), fits = uint16(v), uint64(uint16(v)) == v
	case 4:
		*(*uint32)(p), fits = uint32(v), uint64(uint32(v)) == v
	default:
		*(*uint64)(p) = v
	}
	if !fits {
		return errSize
	}
	return nil
}

func storeFloat(k *kind, p unsafe.Pointer, v uint64) error {
	if k.size == 4 {
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
	switch k.form {
	case aString:
		*(*string)(v) = f(*(*string)(v))
	case aStruct:
		for _, field := range k.fields {
			rename(field.kind, unsafe.Add(v, field.offset), f)
		}
	case aSlice:
		for i, h := 0, *(*header)(v); i < h.len; i++ {
			rename(k.elem, h.at(k.elem, i), f)
		}
	case aPointer:
		if p := *(*unsafe.Pointer)(v); p != nil {
			rename(k.elem, p, f)
		}
	case aMap:
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
