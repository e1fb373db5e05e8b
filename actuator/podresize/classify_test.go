package podresize_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/actuator/podresize"
)

var pods = schema.GroupResource{Resource: "pods"}

// TestClassify is the error table row by row, with the answers as servers and client-go word them. What a real
// server can be brought to say is also met there, in TestRefusals and its neighbours.
func TestClassify(t *testing.T) {
	forbidden := func(text string) error { return apierrors.NewForbidden(pods, "web", errors.New(text)) }
	status := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
	}
	cause := func(err error, c metav1.StatusCause) error {
		s := err.(*apierrors.StatusError)
		s.ErrStatus.Details.Causes = append(s.ErrStatus.Details.Causes, c)
		return s
	}
	plain := func(code int, body string) error { // not a Status object: from a proxy, or a server that does not know the path
		return apierrors.NewGenericServerResponse(code, "PATCH", pods, "web", body, 0, true)
	}
	const denied = `admission webhook "a.b" denied the request: not today`
	for reason, tt := range map[string]struct {
		err  error
		want podresize.Outcome
	}{
		"no error": {nil, podresize.Accepted},

		"pod gone":                      {apierrors.NewNotFound(pods, "web"), podresize.PodGone},
		"namespace gone":                {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), podresize.PodGone},
		"path unknown":                  {plain(404, "404 page not found"), podresize.NotServed},
		"path unknown, as a Status":     {status(404, metav1.StatusReasonNotFound, "the server could not find the requested resource"), podresize.NotServed},
		"method unknown":                {plain(405, ""), podresize.NotServed},
		"not found by a webhook":        {status(404, metav1.StatusReasonNotFound, `admission webhook "a.b" denied the request: NotFound`), podresize.PolicyRefused},
		"a pod called like a complaint": {apierrors.NewNotFound(pods, "exceeded-quota"), podresize.PodGone},

		"changed":          {apierrors.NewConflict(pods, "web", errors.New("the object has been modified; please apply your changes to the latest version and try again")), podresize.Conflict},
		"plain conflict":   {plain(409, ""), podresize.Conflict},
		"replaced by uid":  {cause(apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", nil), metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid", Message: `Invalid value: "u2": field is immutable`}), podresize.Replaced},
		"replaced at last": {apierrors.NewConflict(pods, "web", errors.New("Precondition failed: UID in precondition: u1, UID in object meta: u2")), podresize.Replaced},
		"deleted at last":  {apierrors.NewConflict(pods, "web", errors.New("StorageError: invalid object, Code: 4, Key: /registry/pods/shop/web, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u1, UID in object meta: ")), podresize.PodGone},

		"no permission":             {forbidden(`User "x" cannot patch resource "pods/resize" in API group "" in the namespace "shop"`), podresize.NotAllowed},
		"no credentials":            {apierrors.NewUnauthorized("Unauthorized"), podresize.Unavailable},
		"quota":                     {forbidden("exceeded quota: rq, requested: limits.cpu=2, used: limits.cpu=3, limited: limits.cpu=3"), podresize.QuotaExceeded},
		"no covering quota":         {forbidden("insufficient quota to consume: limits.cpu"), podresize.QuotaExceeded},
		"quota wants limits":        {forbidden("failed quota: rq: must specify limits.cpu for: side"), podresize.QuotaNeedsLimits},
		"quota status unknown":      {forbidden("status unknown for quota: rq, resources: limits.cpu"), podresize.NotYet},
		"LimitRange, several":       {forbidden("[maximum cpu usage per Container is 2, but limit is 2500m, maximum cpu usage per Pod is 3, but limit is 5500m]"), podresize.LimitRangeRefused},
		"LimitRange minimum":        {forbidden("minimum cpu usage per Container is 100m.  No request is specified"), podresize.LimitRangeRefused},
		"LimitRange ratio":          {forbidden("cpu max limit to request ratio per Container is 4, but provided ratio is 5.000000"), podresize.LimitRangeRefused},
		"LimitRange of memory":      {forbidden("maximum memory usage per Container is 1Gi, but limit is 2Gi"), podresize.LimitRangeRefused},
		"node too small":            {cause(forbidden("node didn't have enough allocatable resources: cpu, requested: 5000, allocatable: 4000"), metav1.StatusCause{Type: "NodeCapacity"}), podresize.NodeRefused},
		"node not Linux":            {cause(forbidden(`pod resize is only supported on linux nodes, node "n" is "windows"`), metav1.StatusCause{Type: "UnsupportedPlatform"}), podresize.NodeRefused},
		"node lacks a feature":      {forbidden(`pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node "n1"`), podresize.NodeRefused},
		"node not known":            {forbidden(`node "n1" not found`), podresize.NodeRefused},
		"node not read":             {forbidden(`failed to get node "n1": lister is gone`), podresize.NotYet},
		"caches starting":           {forbidden("not yet ready to handle request"), podresize.NotYet},
		"LimitRanges not read":      {forbidden("unable to UPDATE /v1, Resource=pods at this time because there was an error enforcing limit ranges"), podresize.NotYet},
		"policy":                    {forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: exceeded quota: none"), podresize.PolicyRefused},
		"policy, said to be ours":   {status(422, metav1.StatusReasonInvalid, `pods "web" is forbidden: ValidatingAdmissionPolicy 'p' denied request: no`), podresize.PolicyRefused},
		"policy that cannot be run": {forbidden("policy 'p' with binding 'b' denied request: failed to configure policy"), podresize.PolicyRefused},
		"webhook":                   {status(403, "", `admission webhook "a.b" denied the request: maximum cpu usage per Container is 1`), podresize.PolicyRefused},
		"webhook, conflict":         {status(409, metav1.StatusReasonConflict, denied), podresize.PolicyRefused},
		"webhook, busy":             {status(429, metav1.StatusReasonTooManyRequests, denied), podresize.PolicyRefused},
		"webhook, internal error":   {status(500, metav1.StatusReasonInternalError, denied), podresize.PolicyRefused},
		"policy, too large":         {status(413, metav1.StatusReasonRequestEntityTooLarge, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), podresize.PolicyRefused},
		"unknown admission plugin":  {forbidden("the moon is wrong"), podresize.PolicyRefused},

		"invalid":                    {status(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing`), podresize.Invalid},
		"old kubelet":                {status(422, metav1.StatusReasonInvalid, `Pod "web" is invalid: spec: Forbidden: Pod running on node without support for resize`), podresize.NodeRefused},
		"bad request":                {apierrors.NewBadRequest("error decoding patch"), podresize.Invalid},
		"patch type unknown":         {plain(415, "the body of the request was in an unknown format"), podresize.Invalid},
		"webhook refuses to dry-run": {apierrors.NewBadRequest(`admission webhook "a.b" does not support dry run`), podresize.NoDryRun},

		"too many requests":          {apierrors.NewTooManyRequests("slow down", 3), podresize.Unavailable},
		"internal error":             {apierrors.NewInternalError(errors.New("boom")), podresize.Unavailable},
		"service unavailable":        {apierrors.NewServiceUnavailable("apiserver is shutting down"), podresize.Unavailable},
		"plain 503":                  {plain(503, "no healthy upstream"), podresize.Unavailable},
		"webhook is down":            {apierrors.NewInternalError(errors.New(`failed calling webhook "a.b": failed to call webhook: Post "https://x": context deadline exceeded`)), podresize.Unavailable},
		"quota evaluation is slow":   {apierrors.NewInternalError(errors.New("resource quota evaluation timed out")), podresize.Unavailable},
		"gateway lost its server":    {plain(502, "bad gateway"), podresize.Unknown},
		"gateway timeout":            {plain(504, "gateway timeout"), podresize.Unknown},
		"server timeout":             {apierrors.NewServerTimeout(pods, "update", 2), podresize.Unknown},
		"request timeout":            {apierrors.NewTimeoutError("request did not complete within requested timeout", 0), podresize.Unknown},
		"storage timeout":            {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), podresize.Unknown},
		"storage changes its leader": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), podresize.Unknown},
		"408":                        {plain(408, ""), podresize.Unknown},
		"a code that makes no sense": {status(0, "", ""), podresize.Unknown},

		"our deadline":            {fmt.Errorf("patch: %w", context.DeadlineExceeded), podresize.Unknown},
		"our shutdown":            {context.Canceled, podresize.Unknown},
		"answer lost":             {&url.Error{Op: "Patch", URL: "https://x", Err: io.ErrUnexpectedEOF}, podresize.Unknown},
		"connection lost":         {&url.Error{Op: "Patch", URL: "https://x", Err: &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}}, podresize.Unknown},
		"connection refused":      {&url.Error{Op: "Patch", URL: "https://x", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}, podresize.Unavailable},
		"name cannot be resolved": {&url.Error{Op: "Patch", URL: "https://x", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}}, podresize.Unavailable},
		"anything else":           {errors.New("boom"), podresize.Unknown},
	} {
		t.Run(reason, func(t *testing.T) {
			for _, err := range []error{tt.err, wrap(tt.err)} {
				got := podresize.Classify(err)
				if got.Outcome != tt.want {
					t.Errorf("%v is %v, want %v", err, got.Outcome, tt.want)
				}
				if err != nil && got.Message == "" && tt.want != podresize.Unknown {
					t.Errorf("%v has no message", err)
				}
			}
		})
	}
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("resize: %w", err)
}

// TestClassifyAnything: no error is ever taken for a success, whatever it looks like, and a wrapped error is the
// same error. It makes errors of fragments that mean something, put together in every senseless way. It is no
// fuzz target, because the whole client library would have to be built for that once more, which takes minutes.
func TestClassifyAnything(t *testing.T) {
	fragments := []string{
		"", "x", "\x00", `admission webhook "`, `" denied the request`, "ValidatingAdmissionPolicy '", "' denied request: ",
		"does not support dry run", `User "x" cannot patch resource "pods/resize"`, "exceeded quota: ", "failed quota: b must specify c",
		"status unknown for quota", "not yet ready to handle request", "maximum cpu usage per Pod is ",
		"max limit to request ratio per Container is ", "pod update requires features ", "UID in precondition: ",
		", UID in object meta: ", "failed calling webhook", "timed out", "deadline exceeded", "running on node without support for resize",
	}
	codes := []int32{-1, 0, 100, 200, 201, 302, 400, 401, 403, 404, 405, 408, 409, 410, 415, 422, 429, 500, 502, 503, 504, 599, 1 << 30}
	reasons := []metav1.StatusReason{"", "x", metav1.StatusReasonNotFound, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonConflict}
	kinds := []string{"", "pods", "Pod", "namespaces", "resourcequotas"}
	causes := []metav1.StatusCause{{}, {Type: metav1.CauseTypeUnexpectedServerResponse}, {Type: "NodeCapacity"}, {Field: "metadata.uid"}}
	seconds := []int32{0, 1, -1, 1<<31 - 1}
	random := rand.New(rand.NewPCG(1, 2))
	met := map[podresize.Outcome]int{}
	for range 5_000 {
		s := metav1.Status{Code: pick(random, codes), Reason: pick(random, reasons)}
		for range random.IntN(5) {
			s.Message += pick(random, fragments)
		}
		if random.IntN(4) > 0 {
			s.Details = &metav1.StatusDetails{
				Kind: pick(random, kinds), Name: pick(random, fragments), RetryAfterSeconds: pick(random, seconds),
				Causes: []metav1.StatusCause{pick(random, causes)},
			}
		}
		got := podresize.Classify(&apierrors.StatusError{ErrStatus: s})
		met[got.Outcome]++
		if got.RetryAfter < 0 || got.Pod != nil {
			t.Fatalf("%+v gives %+v", s, got)
		}
		if again := podresize.Classify(fmt.Errorf("wrapped: %w", &apierrors.StatusError{ErrStatus: s})); again.Outcome != got.Outcome {
			t.Fatalf("%+v is %v, wrapped it is %v", s, got.Outcome, again.Outcome)
		}
		if got := podresize.Classify(errors.New(s.Message)).Outcome; got != podresize.Unknown {
			t.Fatalf("an error that only says %q is %v", s.Message, got)
		}
	}
	for o := podresize.Accepted; o <= podresize.NoDryRun; o++ {
		never := o == podresize.Accepted || o == podresize.NoChange || o == podresize.WouldMutate || o == podresize.NotRunning
		if (met[o] == 0) != never {
			t.Errorf("%d errors were %v", met[o], o)
		}
	}
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// TestNames: every outcome and progress has a name of its own.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for o := podresize.Accepted; o <= podresize.NoDryRun+1; o++ { // beyond the last it is a number
		seen[o.String()] = true
	}
	for p := actuator.Done; p <= actuator.Errored; p++ {
		seen[p.String()] = true
	}
	if want := int(podresize.NoDryRun) + int(actuator.Errored) + 3; len(seen) != want || !seen["Outcome(19)"] {
		t.Errorf("%d names for %d values: %v", len(seen), want, seen)
	}
}
