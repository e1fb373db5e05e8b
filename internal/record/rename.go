package record

import (
	"fmt"
	"slices"

	"github.com/mbcas/mbcas/internal/delta"
)

// Rename is the recording with other names of nodes, namespaces, pods and containers, and other IDs: name gives each, and
// text the sentences that may contain names. Both give the same for the same, and a name that name gave stays. It replays like the
// original where the order of names does not matter.
func (r *Recording) Rename(name, text func(string) string) (*Recording, error) {
	given := map[string]bool{"": true}
	once := func(s string) string { // values that share memory are renamed more than once
		if given[s] {
			return s
		}
		s = name(s)
		given[s] = true
		return s
	}
	out := &Recording{About: r.About}
	out.About.Node, out.About.Anonymized, out.About.Pins = once(r.About.Node), true, slices.Clone(r.About.Pins)
	for i := range out.About.Pins {
		p := &out.About.Pins[i]
		if p.Why = text(p.Why); p.Pod != nil {
			p.Pod = &Name{once(p.Pod.Namespace), once(p.Pod.Name)}
		}
	}
	for _, m := range r.Minutes {
		renamed, err := m.rename(once, text)
		if err != nil {
			return nil, err
		}
		out.Minutes = append(out.Minutes, renamed)
	}
	return out, nil
}

func (m *Minute) rename(name, text func(string) string) (*Minute, error) {
	var key Keyframe
	var events []*Event
	err := m.Read(func(k *Keyframe) error { key = *k; return nil },
		func(e *Event) error { events = append(events, e); return nil })
	if err != nil {
		return nil, err
	}
	o := writing{Minute: Minute{Seq: m.Seq, From: m.From, To: m.To}}
	keyframes.Rename(&key, name)
	keyframes.Write(&o.w, new(Keyframe), &key)
	for _, e := range events {
		if err := o.write(e, name, text); err != nil {
			return nil, m.failed(err)
		}
	}
	o.packed = pack(o.w.Bytes)
	return &o.Minute, nil
}

// write appends an event under other names.
func (o *writing) write(e *Event, name, text func(string) string) error {
	switch {
	case e.Round != nil:
		inputs.Rename(e.Round, name)
		writeAs(o, kindRound, inputs, &o.round, e.Round)
	case e.Look != nil:
		looks.Rename(e.Look, name)
		writeAs(o, kindLook, looks, &o.look, e.Look)
	case e.Join != nil:
		joins.Rename(e.Join, name)
		writeAs(o, kindJoin, joins, &o.join, e.Join)
	case e.Gap != nil:
		o.w.Uint(kindGap)
		gaps.Write(&o.w, new(Gap), &Gap{e.Gap.At, text(e.Gap.Why)})
	default:
		return fmt.Errorf("an event has no content")
	}
	if e.Round != nil || e.Join != nil {
		names.Rename(&e.Names, name)
		names.Write(&o.w, &o.names, &e.Names)
		o.names = e.Names
	}
	o.w.Uint(e.Digest)
	return nil
}

func writeAs[T any](o *writing, kind uint64, codec *delta.Codec[T], before, v *T) {
	o.w.Uint(kind)
	codec.Write(&o.w, before, v)
	*before = *v
}
