package record

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/delta"
	"github.com/mbcas/mbcas/internal/round"
)

// A file is magic and chunks. A chunk is its kind (a byte), the length of its payload (4 bytes, little-endian), the
// payload, and the CRC-32C of kind and payload (4 bytes, little-endian). The first chunk is About as JSON. Each of the
// others is a minute: Seq, From and To, and the events compressed by DEFLATE (RFC 1951).
const (
	magic       = "MBR1\n"
	chunkAbout  = 'A'
	chunkMinute = 'M'
	maxChunk    = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// About says where a recording comes from.
type About struct {
	Node string `json:"node"`
	// Version is that of the agent, and Arch the architecture that it runs on.
	Version string `json:"version"`
	Arch    string `json:"arch"`
	// Run tells one start of an agent from another: each counts its minutes from 1.
	Run string `json:"run,omitempty"`
	// Schema is that of the values in the minutes.
	Schema string `json:"schema"`
	Pins   []Pin  `json:"pins,omitempty"`
	// Anonymized: names are pseudonyms.
	Anonymized bool `json:"anonymized,omitempty"`
}

func schemaText() string { return fmt.Sprintf("%016x", schema()) }

func writeFile(w io.Writer, about About, minutes []*Minute) error {
	about.Schema = schemaText()
	head, err := json.Marshal(about)
	if err != nil {
		return fmt.Errorf("describe the recording: %w", err)
	}
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	if err := writeChunk(w, chunkAbout, head); err != nil {
		return err
	}
	for _, m := range minutes {
		var p []byte
		p = binary.AppendUvarint(p, m.Seq)
		p = binary.AppendVarint(p, m.From.UnixNano())
		p = binary.AppendVarint(p, m.To.UnixNano())
		if err := writeChunk(w, chunkMinute, append(p, m.packed...)); err != nil {
			return err
		}
	}
	return nil
}

func writeChunk(w io.Writer, kind byte, payload []byte) error {
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(head[:1], castagnoli), castagnoli, payload)
	for _, part := range [][]byte{head, payload, binary.LittleEndian.AppendUint32(nil, sum)} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Recording is a file that was read.
type Recording struct {
	About   About
	Minutes []*Minute
}

// Add takes over what a later reading of the same recorder has, and replaces minutes that have gone on since.
func (r *Recording) Add(later *Recording) {
	r.About = later.About
	for _, m := range later.Minutes {
		if n := len(r.Minutes); n > 0 && r.Minutes[n-1].Seq >= m.Seq {
			r.Minutes = r.Minutes[:slices.IndexFunc(r.Minutes, func(had *Minute) bool { return had.Seq >= m.Seq })]
		}
		r.Minutes = append(r.Minutes, m)
	}
}

// Damage is where a file cannot be read any further. What comes before is whole.
type Damage struct {
	Offset int64
	Err    error
}

func (d *Damage) Error() string { return fmt.Sprintf("damaged at byte %d: %v", d.Offset, d.Err) }

func (d *Damage) Unwrap() error { return d.Err }

// ErrOtherSchema is the error for a recording by a version of MBCAS that records other values.
var ErrOtherSchema = errors.New("it was recorded by a version of MBCAS that records other values; use the kubectl-mbcas of that version")

// Open reads a file. With a *Damage the recording has what comes before.
func Open(src io.Reader) (*Recording, error) {
	r := &chunkReader{src: src}
	got, err := r.exactly(len(magic))
	if err != nil || string(got) != magic {
		return nil, &Damage{0, errors.New("this is no recording of MBCAS: it does not begin with MBR1")}
	}
	rec := &Recording{}
	start := r.offset
	kind, payload, err := r.chunk()
	if err == nil && kind != chunkAbout {
		err = errors.New("the first part does not say where the recording comes from")
	}
	if err == nil {
		err = json.Unmarshal(payload, &rec.About)
	}
	if err != nil {
		return nil, &Damage{start, err}
	}
	if rec.About.Schema != schemaText() {
		return rec, fmt.Errorf("recorded by MBCAS %s: %w", rec.About.Version, ErrOtherSchema)
	}
	for {
		start = r.offset
		kind, payload, err := r.chunk()
		if errors.Is(err, io.EOF) {
			return rec, nil
		}
		if err == nil && kind != chunkMinute {
			err = fmt.Errorf("there is no part of kind %q", kind)
		}
		var m *Minute
		if err == nil {
			m, err = parseMinute(payload)
		}
		if err != nil {
			return rec, &Damage{start, err}
		}
		rec.Minutes = append(rec.Minutes, m)
	}
}

// OpenFile reads a file by its path. Of a damaged file what comes before the damage is read, if that is a minute or more;
// damage then says, with the path and the offset, why the rest is not.
func OpenFile(path string) (rec *Recording, damage, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	rec, err = Open(file)
	if err == nil {
		return rec, nil, nil
	}
	named := fmt.Errorf("%s: %w", path, err)
	if errors.As(err, new(*Damage)) && rec != nil && len(rec.Minutes) > 0 {
		return rec, named, nil
	}
	return nil, nil, named
}

// Write writes the recording as a file.
func (r *Recording) Write(w io.Writer) error { return writeFile(w, r.About, r.Minutes) }

// chunkReader reads chunks and counts bytes.
type chunkReader struct {
	src    io.Reader
	offset int64
}

var errCut = errors.New("the file ends here, within a part of it")

// exactly reads n bytes. It grows with what is there, not with what is announced.
func (r *chunkReader) exactly(n int) ([]byte, error) {
	var b bytes.Buffer
	got, err := io.CopyN(&b, r.src, int64(n))
	r.offset += got
	if errors.Is(err, io.EOF) && got > 0 {
		err = errCut
	}
	return b.Bytes(), err
}

// chunk reads a chunk; at the end of the file the error is io.EOF.
func (r *chunkReader) chunk() (kind byte, payload []byte, err error) {
	head, err := r.exactly(5)
	if err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxChunk {
		return 0, nil, fmt.Errorf("a part of %d bytes is too long", n)
	}
	body, err := r.exactly(int(n) + 4)
	if errors.Is(err, io.EOF) {
		err = errCut
	}
	if err != nil {
		return 0, nil, err
	}
	payload = body[:n]
	sum := crc32.Update(crc32.Checksum(head[:1], castagnoli), castagnoli, payload)
	if sum != binary.LittleEndian.Uint32(body[n:]) {
		return 0, nil, errors.New("the checksum does not fit")
	}
	return head[0], payload, nil
}

func parseMinute(p []byte) (*Minute, error) {
	seq, a := binary.Uvarint(p)
	if a <= 0 {
		return nil, errors.New("a minute has no number")
	}
	from, b := binary.Varint(p[a:])
	if b <= 0 {
		return nil, errors.New("a minute has no beginning")
	}
	to, c := binary.Varint(p[a+b:])
	if c <= 0 {
		return nil, errors.New("a minute has no end")
	}
	return &Minute{Seq: seq, From: time.Unix(0, from).UTC(), To: time.Unix(0, to).UTC(), packed: p[a+b+c:]}, nil
}

// Read gives the keyframe and then each event of a minute, in order, until visit returns an error. The events may
// share memory with each other: they are to be read only.
func (m *Minute) Read(keyframe func(*Keyframe) error, visit func(*Event) error) error {
	raw, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(m.packed)), maxMinute+1))
	if err == nil && len(raw) > maxMinute {
		err = errors.New("it is too long")
	}
	if err != nil {
		return m.failed(err)
	}
	r := delta.NewReader(raw, maxMemory)
	var k Keyframe
	if err := keyframes.Read(r, new(Keyframe), &k); err != nil {
		return m.failed(err)
	}
	if err := keyframe(&k); err != nil {
		return err
	}
	s := eventReader{Reader: r}
	for r.More() {
		e, err := s.next()
		if err != nil {
			return m.failed(fmt.Errorf("at byte %d: %w", r.At(), err))
		}
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

func (m *Minute) failed(err error) error {
	return fmt.Errorf("the minute from %s: %w", m.From.UTC().Format(time.RFC3339), err)
}

// eventReader keeps the values before, which the next ones differ from.
type eventReader struct {
	*delta.Reader
	round *round.Input
	look  *Look
	join  *Join
	names []Name
}

func (r *eventReader) next() (e *Event, err error) {
	kind, err := r.Uint()
	if err != nil {
		return nil, err
	}
	e = &Event{}
	switch kind {
	case kindRound:
		e.Round, err = read(r.Reader, inputs, &r.round)
	case kindLook:
		e.Look, err = read(r.Reader, looks, &r.look)
	case kindJoin:
		e.Join, err = read(r.Reader, joins, &r.join)
	case kindGap:
		e.Gap = new(Gap)
		err = gaps.Read(r.Reader, new(Gap), e.Gap)
	default:
		err = fmt.Errorf("there is no event of kind %d", kind)
	}
	if err == nil && (kind == kindRound || kind == kindJoin) {
		var of []Name
		if err = names.Read(r.Reader, &r.names, &of); err == nil {
			r.names, e.Names = of, of
		}
	}
	if err == nil {
		e.Digest, err = r.Uint()
	}
	return e, err
}

// read reads a value that differs from the one before, which it replaces.
func read[T any](r *delta.Reader, c *delta.Codec[T], before **T) (*T, error) {
	if *before == nil {
		*before = new(T)
	}
	v := new(T)
	if err := c.Read(r, *before, v); err != nil {
		return nil, err
	}
	*before = v
	return v, nil
}
