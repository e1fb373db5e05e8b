package install

import (
	"errors"
	"fmt"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// explained is an error of the API server about an object, with what to do about it.
func explained(verb string, o *unstructured.Unstructured, err error) error {
	advice := ""
	switch {
	case apierrors.IsForbidden(err):
		advice = "; installing, upgrading and uninstalling need the rights of a cluster administrator, and admission that " +
			"permits it"
	case apierrors.IsConflict(err) && verb == "apply":
		advice = "; these fields were set by another client: take its change back, or give --force-conflicts to overwrite it"
	case apierrors.IsConflict(err):
		advice = "; another client has made it anew meanwhile: see that no other installation runs, and repeat the command"
	case transient(err):
		advice = "; what is done stays, and the command can be repeated"
	}
	return fmt.Errorf("%s %s: %w%s", verb, nameOf(o), err, advice)
}

// transient says whether an error may be none a moment later: the API server is busy, restarts, or cannot be reached.
func transient(err error) bool {
	if network := net.Error(nil); errors.As(err, &network) {
		return true
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}
