package securemetrics

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
)

// reviewer asks the API server. Its account needs the right to create TokenReviews and SubjectAccessReviews.
type reviewer struct {
	tokens authenticationclient.TokenReviewInterface
	access authorizationclient.SubjectAccessReviewInterface
}

func newReviewer(config *rest.Config, client *http.Client) (*reviewer, error) {
	own := rest.CopyConfig(config)
	own.QPS = -1 // the gate bounds the questions, and does not wait
	tokens, err := authenticationclient.NewForConfigAndClient(own, client)
	if err != nil {
		return nil, fmt.Errorf("set up the review of tokens: %w", err)
	}
	access, err := authorizationclient.NewForConfigAndClient(own, client)
	if err != nil {
		return nil, fmt.Errorf("set up the review of access: %w", err)
	}
	return &reviewer{tokens.TokenReviews(), access.SubjectAccessReviews()}, nil
}

// ask is an asker.
func (r *reviewer) ask(ctx context.Context, token, verb, path string) (verdict, error) {
	t := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	t, err := r.tokens.Create(ctx, t, metav1.CreateOptions{})
	if err != nil {
		return unknownUser, fmt.Errorf("review a token: %w", err)
	}
	if !t.Status.Authenticated {
		return unknownUser, nil
	}
	user := t.Status.User
	a := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}}
	for k, v := range user.Extra {
		a.Spec.Extra[k] = authorizationv1.ExtraValue(v)
	}
	if a, err = r.access.Create(ctx, a, metav1.CreateOptions{}); err != nil {
		return forbidden, fmt.Errorf("review the access of %s to %s: %w", user.Username, path, err)
	}
	if !a.Status.Allowed || a.Status.Denied {
		return forbidden, nil
	}
	return allowed, nil
}
