package sim

import "time"

// events is what happens next: one time per slot, the earliest first, the lower slot where two are
// equal.
type events struct {
	at   []time.Duration // by slot; never: nothing planned
	heap []int32         // slots
	pos  []int32         // by slot
}

const never = time.Duration(1<<63 - 1)

// add makes a slot with nothing planned.
func (e *events) add() int32 {
	slot := int32(len(e.at))
	e.at = append(e.at, never)
	e.heap = append(e.heap, slot)
	e.pos = append(e.pos, slot)
	return slot
}

func (e *events) next() (slot int32, at time.Duration) {
	slot = e.heap[0]
	return slot, e.at[slot]
}

// plan sets the time of a slot.
func (e *events) plan(slot int32, at time.Duration) {
	before := e.at[slot]
	if before == at {
		return
	}
	e.at[slot] = at
	if at < before {
		e.up(int(e.pos[slot]))
	} else {
		e.down(int(e.pos[slot]))
	}
}

func (e *events) less(a, b int32) bool {
	return e.at[a] < e.at[b] || e.at[a] == e.at[b] && a < b
}

func (e *events) up(i int) {
	slot := e.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !e.less(slot, e.heap[parent]) {
			break
		}
		e.put(i, e.heap[parent])
		i = parent
	}
	e.put(i, slot)
}

func (e *events) down(i int) {
	slot := e.heap[i]
	for {
		child := 2*i + 1
		if child >= len(e.heap) {
			break
		}
		if child+1 < len(e.heap) && e.less(e.heap[child+1], e.heap[child]) {
			child++
		}
		if !e.less(e.heap[child], slot) {
			break
		}
		e.put(i, e.heap[child])
		i = child
	}
	e.put(i, slot)
}

func (e *events) put(i int, slot int32) { e.heap[i], e.pos[slot] = slot, int32(i) }
