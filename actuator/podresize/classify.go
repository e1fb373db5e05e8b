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

// Classify maps the error of a resize request to its outcome. It is pure; only nil is Accepted. Refusals
// without a code of their own are recognised by the messages of Kubernetes 1.32 to 1.37.
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
	if m := namedWebhook.FindStringSubmatch(status.Message); m != nil {
		r.Webhook = m[1]
	}
	if r.Message == "" {
		r.Message = err.Error()
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		r.RetryAfter = time.Duration(status.Details.RetryAfterSeconds) * time.Second
	}
	return r
}

// transport classifies errors without an answer. Only a failed dial proves that nothing was sent.
func transport(err error) Outcome {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return Unavailable
	}
	return Unknown
}

func outcome(s metav1.Status) Outcome {
	// Policies and webhooks choose their own code, so their message counts before the code.
	if policyRefused.MatchString(s.Message) {
		return PolicyRefused
	}
	switch s.Code {
	case http.StatusBadRequest:
		if strings.Contains(s.Message, "does not support dry run") {
			return NoDryRun
		}
		return Invalid
	case http.StatusUnauthorized: // the token, or what checks it: nothing is said about this resize
		return Unavailable
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

// forbidden splits the many refusals that the API server answers with 403 Forbidden.
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
	return PolicyRefused // an unknown admission plugin
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

// notFound separates a deleted pod from a server without the path: client-go reports NotFound for
// both, but only the server names the pod.
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

// conflict separates a changed pod from one that was deleted or replaced during the write.
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

// serverError separates Unavailable from Unknown. A failure in admission precedes the write; a timeout
// elsewhere, or a gateway that lost its server, may hide a completed write.
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

// failedWebhook is in the message of the API server when a webhook is unreachable or times out.
const failedWebhook = "failed calling webhook"

var namedWebhook = regexp.MustCompile(failedWebhook + ` "([^"]+)"`)

var timedOut = regexp.MustCompile(`(?i)timed? ?out|deadline exceeded|leader changed`)

func causes(s metav1.Status) []metav1.StatusCause {
	if s.Details == nil {
		return nil
	}
	return s.Details.Causes
}
