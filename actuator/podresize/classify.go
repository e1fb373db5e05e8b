package podresize

import (
	"errors"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Classify says which outcome an error of a resize request is. It is pure, and Accepted is its answer to nil
// alone. Where Kubernetes has no code of its own for a refusal it goes by the texts of Kubernetes 1.32 to 1.37.
func Classify(err error) Result {
	if err == nil {
		return Result{Outcome: Accepted}
	}
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return Result{Outcome: transport(err), Message: err.Error()}
	}
	status := s.Status()
	r := Result{Outcome: outcome(status), Message: status.Message, WebhookFailed: strings.Contains(status.Message, failedWebhook)}
	if r.Message == "" {
		r.Message = err.Error()
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		r.RetryAfter = time.Duration(status.Details.RetryAfterSeconds) * time.Second
	}
	return r
}

// transport is about errors on the way to the server. Only where no connection was made is it sure that
// nothing was done.
func transport(err error) Outcome {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return Unavailable
	}
	return Unknown
}

func outcome(s metav1.Status) Outcome {
	// Policies and webhooks answer with any code they like, so their own words come before the code.
	if policyRefused.MatchString(s.Message) {
		return PolicyRefused
	}
	switch s.Code {
	case http.StatusBadRequest:
		if strings.Contains(s.Message, "does not support dry run") {
			return NoDryRun
		}
		return Invalid
	case http.StatusUnauthorized:
		return NotAllowed
	case http.StatusForbidden:
		return forbidden(s)
	case http.StatusNotFound:
		return notFound(s)
	case http.StatusMethodNotAllowed:
		return NotServed
	case http.StatusConflict:
		return conflict(s)
	case http.StatusUnprocessableEntity:
		return unprocessable(s)
	case http.StatusTooManyRequests:
		return Unavailable
	case http.StatusRequestTimeout:
		return Unknown
	}
	switch {
	case s.Code >= 500:
		return serverError(s)
	case s.Code >= 400:
		return Invalid
	}
	return Unknown
}

var policyRefused = regexp.MustCompile(`admission webhook ".*" denied the request|[pP]olicy ['"].*['"].* denied request: `)

// forbidden tells apart the many things that the API server calls Forbidden.
func forbidden(s metav1.Status) Outcome {
	for _, c := range causes(s) {
		if c.Type == "NodeCapacity" || c.Type == "UnsupportedPlatform" {
			return NodeRefused
		}
	}
	for _, t := range forbiddenTexts {
		if t.text.MatchString(s.Message) {
			return t.outcome
		}
	}
	return PolicyRefused // an admission plugin that we do not know
}

var forbiddenTexts = []struct {
	text    *regexp.Regexp
	outcome Outcome
}{
	{regexp.MustCompile(`User ".*" cannot patch resource "pods/resize"`), NotAllowed},
	{regexp.MustCompile(`not yet ready to handle request|error enforcing limit ranges|status unknown for quota|failed to get node `), NotYet},
	{regexp.MustCompile(`exceeded quota: |insufficient quota to consume: `), QuotaExceeded},
	{regexp.MustCompile(`failed quota: .* must specify `), QuotaNeedsLimits},
	{regexp.MustCompile(`(maximum|minimum) \S+ usage per \S+ is |max limit to request ratio per \S+ is `), LimitRangeRefused},
	{regexp.MustCompile(`pod update requires features |node didn't have enough allocatable resources|node ".*" not found`), NodeRefused},
}

// notFound tells a pod that is gone from a server that does not know the path: client-go makes both a
// NotFound, but only the server itself can name the pod.
func notFound(s metav1.Status) Outcome {
	for _, c := range causes(s) {
		if c.Type == metav1.CauseTypeUnexpectedServerResponse {
			return NotServed
		}
	}
	if d := s.Details; d != nil && (d.Kind == "pods" || d.Kind == "namespaces") && d.Name != "" {
		return PodGone
	}
	return NotServed
}

// conflict tells a changed pod from one that was deleted or replaced while the server was writing.
func conflict(s metav1.Status) Outcome {
	if m := uidPrecondition.FindStringSubmatch(s.Message); m != nil {
		if m[1] == "" {
			return PodGone
		}
		return Replaced
	}
	return Conflict
}

var uidPrecondition = regexp.MustCompile(`UID in precondition: \S*, UID in object meta: ?(\S*)`)

func unprocessable(s metav1.Status) Outcome {
	for _, c := range causes(s) {
		if c.Field == "metadata.uid" {
			return Replaced
		}
	}
	if strings.Contains(s.Message, "running on node without support for resize") {
		return NodeRefused
	}
	return Invalid
}

// serverError tells "nothing was done" from "nobody knows". What fails in admission fails before anything
// is stored; a timeout elsewhere, or a gateway that lost its server, may hide a change that was made.
func serverError(s metav1.Status) Outcome {
	switch {
	case strings.Contains(s.Message, failedWebhook), strings.Contains(s.Message, "resource quota evaluation timed out"):
		return Unavailable
	case s.Code == http.StatusBadGateway, s.Code == http.StatusGatewayTimeout,
		s.Reason == metav1.StatusReasonTimeout, s.Reason == metav1.StatusReasonServerTimeout,
		timedOut.MatchString(s.Message):
		return Unknown
	}
	return Unavailable
}

// failedWebhook is what the API server says of a webhook that it cannot reach, or that does not answer.
const failedWebhook = "failed calling webhook"

var timedOut = regexp.MustCompile(`(?i)timed? ?out|deadline exceeded|leader changed`)

func causes(s metav1.Status) []metav1.StatusCause {
	if s.Details == nil {
		return nil
	}
	return s.Details.Causes
}
