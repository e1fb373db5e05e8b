package memapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// selector is what a list or a watch asks for: objects with that field, or all where it is "".
type selector struct {
	kind         Kind
	field, value string
}

func selectorOf(k Kind, query url.Values) selector {
	s := selector{kind: k}
	s.field, s.value, _ = strings.Cut(query.Get("fieldSelector"), "=")
	return s
}

func (l selector) selects(o client.Object) bool {
	switch l.field {
	case "":
		return true
	case "metadata.name":
		return o.GetName() == l.value
	case "spec.nodeName":
		return nodeNameOf(o) == l.value
	}
	return false
}

// selected are the stored objects that it asks for, by namespace and name.
func (s *Server) selected(l selector) (list []client.Object) {
	for id, o := range s.objects {
		if id.resource == l.kind.Resource && l.selects(o) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, order)
	return list
}

// list answers with all objects of a kind that a request selects.
func (s *Server) list(k Kind, q *http.Request) (*http.Response, error) {
	items := []json.RawMessage{}
	for _, o := range s.selected(selectorOf(k, q.URL.Query())) {
		raw, err := encode(k, o)
		if err != nil {
			return nil, err
		}
		items = append(items, raw)
	}
	raw, err := json.Marshal(map[string]any{
		"kind": k.Kind + "List", "apiVersion": k.GroupVersion().String(),
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)}, "items": items,
	})
	if err != nil {
		return nil, err
	}
	return answer(q, http.StatusOK, raw), nil
}

// watch answers with a stream of changes: those after the version that the request names, or, where it
// wants the present objects first, these, a bookmark, and what comes.
func (s *Server) watch(k Kind, q *http.Request) (*http.Response, error) {
	query := q.URL.Query()
	w := &watcher{server: s, selector: selectorOf(k, query), ctx: q.Context(), wake: make(chan struct{}, 1), closed: make(chan struct{})}
	if query.Get("sendInitialEvents") == "true" {
		for _, o := range s.selected(w.selector) {
			w.send("ADDED", o)
		}
		end := k.new()
		end.SetResourceVersion(strconv.FormatInt(s.version, 10))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.send("BOOKMARK", end)
	} else {
		from, err := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
		if err != nil || from < s.compacted {
			gone := apierrors.NewResourceExpired("too old resource version: " + query.Get("resourceVersion"))
			return answer(q, http.StatusGone, encodeStatus(gone)), nil
		}
		i, _ := slices.BinarySearchFunc(s.log, from+1, func(e Event, v int64) int { return int(e.Revision - v) })
		for _, e := range s.log[i:] {
			w.offer(e)
		}
	}
	s.watching.Lock()
	defer s.watching.Unlock()
	if s.watchers == nil {
		s.watchers = map[*watcher]bool{}
	}
	s.watchers[w] = true
	r := answer(q, http.StatusOK, nil)
	r.Body, r.ContentLength = w, -1
	return r, nil
}

// tell hands a change to the watches.
func (s *Server) tell(e Event) {
	s.watching.Lock()
	defer s.watching.Unlock()
	for w := range s.watchers {
		w.offer(e)
	}
}

// watcher is the body of the answer to a watch.
type watcher struct {
	server *Server
	selector
	ctx    context.Context
	wake   chan struct{} // holds one value: there is more
	closed chan struct{}
	close  sync.Once

	mu      sync.Mutex
	pending bytes.Buffer
}

// offer sends a change, if it was asked for.
func (w *watcher) offer(e Event) {
	if e.Resource != w.kind.Resource {
		return
	}
	switch {
	case e.After == nil && e.Before != nil && w.selects(e.Before):
		last := e.Before.DeepCopyObject().(client.Object)
		last.SetResourceVersion(strconv.FormatInt(e.Revision, 10))
		w.send("DELETED", last)
	case e.After == nil || !w.selects(e.After):
	case e.Before == nil:
		w.send("ADDED", e.After)
	default:
		w.send("MODIFIED", e.After)
	}
}

func (w *watcher) send(kind string, o client.Object) {
	raw, err := encode(w.kind, o)
	if err != nil {
		panic(err) // it was stored
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.pending, `{"type":%q,"object":%s}`+"\n", kind, raw)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Read waits for the next change.
func (w *watcher) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		if w.pending.Len() > 0 {
			defer w.mu.Unlock()
			return w.pending.Read(p)
		}
		w.mu.Unlock()
		select {
		case <-w.wake:
		case <-w.closed:
			return 0, io.EOF
		case <-w.ctx.Done():
			return 0, w.ctx.Err()
		}
	}
}

// Close ends the watch.
func (w *watcher) Close() error {
	w.close.Do(func() {
		close(w.closed)
		w.server.watching.Lock()
		defer w.server.watching.Unlock()
		delete(w.server.watchers, w)
	})
	return nil
}

// Compact forgets the versions before the last one of each object among the first changes of the log.
// A watch from one of them is refused.
func (s *Server) Compact(upTo int) {
	last := map[key]int{}
	for i, e := range s.log[:upTo] {
		last[key{e.Resource, e.Key}] = i
	}
	for i := range s.log[:upTo] {
		e := &s.log[i]
		s.compacted = max(s.compacted, e.Revision)
		switch newest := last[key{e.Resource, e.Key}] == i; {
		case !newest || e.After == nil:
			*e = Event{Revision: e.Revision}
		default:
			e.Before = nil
		}
	}
}
