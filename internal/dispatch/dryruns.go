package dispatch

import "sync"

// mutations numbers what showed, in a dry run or a resize, that admission changes pods of a namespace. A dry
// run from before the last one of its namespace does not count any more. The zero value has none.
type mutations struct {
	mu    sync.Mutex
	count int64
	of    map[string]int64 // the last one, by namespace
	other int64            // of all other namespaces
}

// mutationsMost bounds the namespaces of which the last one is kept. When there are more, each pod of any
// namespace has another dry run.
const mutationsMost = 10000

// last is the number of the last one of a namespace.
func (m *mutations) last(namespace string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.of[namespace]; ok {
		return n
	}
	return m.other
}

// found counts one.
func (m *mutations) found(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	if _, known := m.of[namespace]; !known && len(m.of) >= mutationsMost {
		m.of, m.other = nil, m.count
	}
	if m.of == nil {
		m.of = map[string]int64{}
	}
	m.of[namespace] = m.count
}
