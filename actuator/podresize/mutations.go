package podresize

import "sync"

// Mutations numbers what showed, in dry runs or resizes, that admission changes pods of a namespace. A
// dry run counts while the number of its namespace is what it was before it. The zero value has none.
type Mutations struct {
	mu          sync.Mutex
	count       int64
	byNamespace map[string]int64 // the number of the last one
	rest        int64            // that of all other namespaces
}

// mutationsMost bounds the namespaces of which the last one is kept. When there are more, all dry runs
// are void.
const mutationsMost = 10000

// Number is that of the last one of a namespace; 0: there was none.
func (m *Mutations) Number(namespace string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.byNamespace[namespace]; ok {
		return n
	}
	return m.rest
}

// Found takes one in, of an attempt that began at that number; harmless says that a dry run had found
// such pods harmless. It voids the dry runs of its namespace where it is news: after such a dry run, or
// where it is the first one of all. A pod that is changed at each attempt tells nothing of others.
func (m *Mutations) Found(namespace string, number int64, harmless bool) {
	if !harmless && number != 0 {
		return
	}
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
