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
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// selector is what a list or a watch asks for: objects of a namespace, with labels and with a
// field, or all of them where these are empty.
type selector struct {
	kind         Kind
	namespace    string
	labels       labels.Selector
	field, value string
}

func selectorOf(w write, query url.Values) (s selector, err error) {
	s = selector{kind: w.kind, namespace: w.name.Namespace}
	s.field, s.value, _ = strings.Cut(query.Get("fieldSelector"), "=")
	s.labels, err = labels.Parse(query.Get("labelSelector"))
	return s, err
}

func (l selector) selects(o client.Object) bool {
	if l.namespace != "" && o.GetNamespace() != l.namespace || !l.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
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
func (s *Server) list(l selector, q *http.Request) (*http.Response, error) {
	k, items := l.kind, []json.RawMessage{}
	for _, o := range s.selected(l) {
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

// watch answers with a stream of changes: those after the version that the request names, or, where
// it wants the present objects first, these, a bookmark, and what comes. One that names no version
// has the present objects first, too, without a bookmark.
func (s *Server) watch(l selector, q *http.Request) (*http.Response, error) {
	k, query := l.kind, q.URL.Query()
	w := &watcher{server: s, selector: l, ctx: q.Context(), wake: make(chan struct{}, 1), closed: make(chan struct{})}
	version, initial := query.Get("resourceVersion"), query.Get("sendInitialEvents") == "true"
	switch {
	case initial || version == "":
		for _, o := range s.selected(w.selector) {
			w.send("ADDED", o)
		}
		if initial {
			end := k.new()
			end.SetResourceVersion(strconv.FormatInt(s.version, 10))
			end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			w.send("BOOKMARK", end)
		}
	default:
		from, err := strconv.ParseInt(version, 10, 64)
		if err != nil || from < s.compacted {
			gone := apierrors.NewResourceExpired("too old resource version: " + version)
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
			// Not its error: a client passes an error on to a reader that may have ended, and waits for it.
			return 0, io.EOF
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
