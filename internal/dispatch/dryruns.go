package dispatch

import "sync"

// mutations numbers what showed, in a dry run or a resize, that admission changes pods of a namespace. A dry
// run from before the last one of its namespace does not count any more. The zero value has none.
type mutations struct {
	mu          sync.Mutex
	count       int64
	byNamespace map[string]int64 // the number of the last one
	rest        int64            // that of all other namespaces
}

// mutationsMost bounds the namespaces of which the last one is kept. When there are more, each pod of any
// namespace has another dry run.
const mutationsMost = 10000

// number is that of the last one of a namespace; 0: there was none.
func (m *mutations) number(namespace string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.byNamespace[namespace]; ok {
		return n
	}
	return m.rest
}

// found counts one.
func (m *mutations) found(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	if _, known := m.byNamespace[namespace]; !known && len(m.byNamespace) >= mutationsMost {
		m.byNamespace, m.rest = nil, m.count
	}
	if m.byNamespace == nil {
		m.byNamespace = map[string]int64{}
	}
	m.byNamespace[namespace] = m.count
}
