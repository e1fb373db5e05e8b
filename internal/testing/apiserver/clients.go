package apiserver

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// As is a client of a user without permissions until some role is bound to that name, or to one
// of the groups.
func (s *Server) As(t testing.TB, user string, groups ...string) client.Client {
	t.Helper()
	return s.client(t, s.User(t, user, groups...).Config())
}

// User is such a user with a client certificate.
func (s *Server) User(t testing.TB, name string, groups ...string) *envtest.AuthenticatedUser {
	t.Helper()
	u, err := s.AddUser(name, groups...)
	if err != nil {
		t.Fatalf("add user %s: %v", name, err)
	}
	return u
}

// AddUser is such a user for a program that is no test.
func (s *Server) AddUser(name string, groups ...string) (*envtest.AuthenticatedUser, error) {
	return s.env.AddUser(envtest.User{Name: name, Groups: groups}, s.Config)
}

// Token requests a token of a service account, as a kubelet does for a pod: such a token is bound to
// the pod, and names the pod's node. With no pod it is bound to nothing, like those of kubectl create
// token.
func Token(ctx context.Context, c client.Client, account client.ObjectKey, pod *corev1.Pod) (string, error) {
	sa := &corev1.ServiceAccount{}
	sa.Namespace, sa.Name = account.Namespace, account.Name
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		}
	}
	err := c.SubResource("token").Create(ctx, sa, request)
	return request.Status.Token, err
}

// Bearer is a client with that token.
func (s *Server) Bearer(t testing.TB, token string) client.Client {
	t.Helper()
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken, config.QPS = token, -1
	return s.client(t, config)
}

func (s *Server) client(t testing.TB, config *rest.Config) client.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = warnings{}
	c, err := client.New(config, client.Options{Scheme: s.Client.Scheme()})
	if err != nil {
		t.Fatalf("client: %v", err)
	}
	return c
}

// Warned is a context for requests of such clients, and the warnings that the API server sent along
// with its answers to them.
func Warned(ctx context.Context) (context.Context, *[]string) {
	got := &[]string{}
	return context.WithValue(ctx, warnings{}, got), got
}

// warnings gathers the API server's warnings in the context of the request, if that has a place for
// them.
type warnings struct{}

func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	if got, ok := ctx.Value(w).(*[]string); ok {
		*got = append(*got, text)
	}
}
