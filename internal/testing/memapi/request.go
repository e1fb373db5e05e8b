package memapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared is the server for several goroutines: one request at a time.
func (s *Server) Shared() http.RoundTripper { return &shared{server: s} }

type shared struct {
	mu     sync.Mutex
	server *Server
}

func (s *shared) RoundTrip(q *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server.RoundTrip(q)
}

// RoundTrip answers a request.
func (s *Server) RoundTrip(q *http.Request) (*http.Response, error) {
	var body []byte
	if q.Body != nil {
		var err error
		body, err = io.ReadAll(q.Body)
		_ = q.Body.Close() // it has been read
		if err != nil {
			return nil, err
		}
	}
	if err := q.Context().Err(); err != nil {
		return nil, err
	}
	if r, ok := s.discovery(q); ok {
		return r, nil
	}
	w, ok := parse(q)
	if ok && w.name.Name == "" && w.verb != "create" {
		return s.set(w, q)
	}
	if !ok {
		return answer(q, http.StatusNotImplemented, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":501}`)), nil
	}
	o, status := s.serve(w, q, body)
	if status != nil {
		return answer(q, int(status.ErrStatus.Code), encodeStatus(status)), nil
	}
	code := http.StatusOK
	if q.Method == http.MethodPost {
		code = http.StatusCreated
	}
	if o == nil {
		return answer(q, code, success), nil
	}
	raw, err := encode(w.kind, o)
	if err != nil {
		return nil, err
	}
	return answer(q, code, raw), nil
}

// success is the answer where there is no object to answer with.
var success = []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)

// set answers a request about a set of objects.
func (s *Server) set(w write, q *http.Request) (*http.Response, error) {
	query := q.URL.Query()
	l, err := selectorOf(w, query)
	if err != nil {
		return answer(q, http.StatusBadRequest, encodeStatus(apierrors.NewBadRequest(err.Error()))), nil
	}
	switch {
	case w.verb == "get" && query.Get("watch") != "":
		return s.watch(l, q)
	case w.verb == "get":
		return s.list(l, q)
	}
	for _, o := range s.selected(l) {
		one := w
		one.name = client.ObjectKeyFromObject(o)
		s.delete(one, o)
	}
	return answer(q, http.StatusOK, success), nil
}

// delete deletes an object, or marks it where a finalizer holds it; then it is the answer.
func (s *Server) delete(w write, current client.Object) client.Object {
	if len(current.GetFinalizers()) == 0 {
		s.remove(w, current)
		return nil
	}
	next, now := current.DeepCopyObject().(client.Object), metav1.NewTime(s.Now().Truncate(time.Second))
	next.SetDeletionTimestamp(&now)
	return s.store(w, current, next)
}

func encodeStatus(e *apierrors.StatusError) []byte {
	e.ErrStatus.Kind, e.ErrStatus.APIVersion = "Status", "v1"
	raw, err := json.Marshal(e.ErrStatus)
	if err != nil {
		panic(err) // a Status is strings and numbers
	}
	return raw
}

func answer(q *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: q,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// parse reads what a request is about.
func parse(q *http.Request) (w write, ok bool) {
	parts := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return w, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		w.name.Namespace, parts = parts[1], parts[2:]
	}
	for _, k := range kinds {
		if k.Resource == parts[0] && k.Group == group {
			w.kind, ok = k, true
		}
	}
	if len(parts) > 1 {
		w.name.Name = parts[1]
	}
	if len(parts) > 2 {
		w.sub = parts[2]
	}
	query := q.URL.Query()
	w.actor, w.manager, w.dry = q.UserAgent(), query.Get("fieldManager"), query.Get("dryRun") == "All"
	w.verb = map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[q.Method]
	return w, ok && w.verb != "" && (w.name.Name != "" || w.verb == "create" || w.verb == "get" || w.verb == "delete")
}

func (s *Server) serve(w write, q *http.Request, body []byte) (client.Object, *apierrors.StatusError) {
	if w.verb == "create" {
		o := w.kind.new()
		if err := json.Unmarshal(body, o); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		o.SetNamespace(w.name.Namespace)
		return s.create(w, o)
	}
	current, ok := s.objects[w.key()]
	if !ok && w.verb == "update" && w.kind.Resource == "leases" { // an update may create one
		o, err := decode(w.kind, q, body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return s.create(w, o)
	}
	if !ok {
		return nil, apierrors.NewNotFound(w.kind.resource(), w.name.Name)
	}
	switch w.verb {
	case "get":
		return current, nil
	case "delete":
		var options metav1.DeleteOptions
		if err := json.Unmarshal(body, &options); len(body) > 0 && err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != current.GetUID() {
			return nil, apierrors.NewConflict(w.kind.resource(), w.name.Name, fmt.Errorf( //nolint:staticcheck // as the API server words it
				"Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, current.GetUID()))
		}
		return s.delete(w, current), nil
	case "update":
		next, err := decode(w.kind, q, body)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if uid := next.GetUID(); uid != "" && uid != current.GetUID() {
			return nil, apierrors.NewConflict(w.kind.resource(), w.name.Name, fmt.Errorf( //nolint:staticcheck // as the API server words it
				"Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, current.GetUID()))
		}
		w.uid, w.version = next.GetUID(), next.GetResourceVersion()
		return s.update(w, current, next)
	}
	var named metav1.PartialObjectMetadata // what the patch itself names, and not the object
	if err := json.Unmarshal(body, &named); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w.uid, w.version = named.UID, named.ResourceVersion
	next, err := patched(w.kind, current, q.Header.Get("Content-Type"), body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.update(w, current, next)
}

// decode reads the object of a request, which is JSON or, from agents, protobuf.
func decode(k Kind, q *http.Request, body []byte) (client.Object, error) {
	o := k.new()
	if q.Header.Get("Content-Type") != runtime.ContentTypeProtobuf {
		return o, json.Unmarshal(body, o)
	}
	_, _, err := protobuf.NewSerializer(Scheme, Scheme).Decode(body, nil, o)
	return o, err
}

// patched is an object after a patch.
func patched(k Kind, current client.Object, contentType string, patch []byte) (client.Object, error) {
	raw, err := encode(k, current)
	if err != nil {
		return nil, err
	}
	switch types.PatchType(contentType) {
	case types.MergePatchType:
		var to, from any
		if err := json.Unmarshal(raw, &to); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(patch, &from); err != nil {
			return nil, err
		}
		raw, err = json.Marshal(merge(to, from))
	case types.StrategicMergePatchType:
		raw, err = strategicpatch.StrategicMergePatch(raw, patch, k.new())
	default:
		err = fmt.Errorf("no patch of type %s", contentType)
	}
	if err != nil {
		return nil, err
	}
	next := k.new()
	return next, json.Unmarshal(raw, next)
}

// merge is a JSON merge patch: RFC 7386.
func merge(to, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := to.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for name, value := range fields {
		if value == nil {
			delete(out, name)
		} else {
			out[name] = merge(out[name], value)
		}
	}
	return out
}

// update stores an object that a request has changed, as far as the request may change it.
func (s *Server) update(w write, current, next client.Object) (client.Object, *apierrors.StatusError) {
	if v := next.GetResourceVersion(); v != "" && v != current.GetResourceVersion() {
		return nil, apierrors.NewConflict(w.kind.resource(), w.name.Name, errModified)
	}
	if uid := next.GetUID(); uid != "" && uid != current.GetUID() {
		return nil, apierrors.NewInvalid(groupKind(w.kind), w.name.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"),
		})
	}
	next.SetUID(current.GetUID())
	switch w.sub {
	case "":
		setPart(next, current, "Status")
	case "status":
		changed := next
		next = current.DeepCopyObject().(client.Object)
		setPart(next, changed, "Status")
	case "resize":
		return s.resize(w, current, next)
	default:
		return nil, apierrors.NewNotFound(w.kind.resource(), w.name.Name)
	}
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 {
		s.remove(w, current)
		return next, nil
	}
	return s.store(w, current, next), nil
}

func groupKind(k Kind) genericregistry.GroupKind { return k.GroupKind() }

var errModified = fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again")
