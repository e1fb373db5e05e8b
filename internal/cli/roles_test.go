package cli

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/testing/must"
)

// requests are those of a client, as "verb resource.group".
type requests map[string]bool

// record is a client that records the requests of c.
func (r requests) record(c client.WithWatch) client.Client {
	add := func(verb string, o runtime.Object, subresource string) {
		gvk, _ := apiutil.GVKForObject(o, c.Scheme())
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		resource := plural.GroupResource()
		resource.Resource += subresource
		r[verb+" "+resource.String()] = true
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			add("get", o, "")
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			add("list", list, "")
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			add("create", o, "")
			return c.Create(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			add("patch", o, "/"+sub)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// pluginRoles are what the shipped roles for users of the plugin allow.
func pluginRoles(t *testing.T) requests {
	t.Helper()
	data, err := os.ReadFile("../../config/components/plugin-users/roles.yaml")
	must.Succeed(t, err)
	granted := requests{}
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		var role struct {
			Kind  string
			Rules []rbacv1.PolicyRule
		}
		must.Succeed(t, yaml.Unmarshal(document, &role))
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted[verb+" "+schema.GroupResource{Group: rule.APIGroups[0], Resource: resource}.String()] = true
				}
			}
		}
	}
	return granted
}

// TestPluginRoles: the roles for users of the plugin allow exactly what it requests. What they do
// not allow, such as the scale of a custom target, is a note. That the API server grants the roles
// is proved in package config.
func TestPluginRoles(t *testing.T) {
	target := vpaOf("roll", kube.Target{APIVersion: "example.org/v1", Kind: "Rollout", Name: "roll"}, "Recreate")
	c := newCluster(t, append(plaza(), target)...)
	c.Namespace = "plaza"
	c.Rounds = serves(recorderOf(5))
	made := requests{}
	c.Client = made.record(c.Client.(client.WithWatch))
	c.scale = func(o client.Object) (string, error) {
		return "", apierrors.NewForbidden(schema.GroupResource{Group: "example.org", Resource: "rollouts/scale"}, o.GetName(), errors.New("no"))
	}
	const unknown = `rollouts/scale.example.org "roll" is forbidden`
	for args, want := range map[string]string{
		"doctor": unknown, "explain roll-abc-1": unknown, "list -A": unknown, "usage": unknown, "mode": "", "mode plaza": "", "version": "",
		"log api-abc-1": "", "advise": "",
		"restore --all --dry-run": "", "resize api-abc-1 --cpu-limit 250m --dry-run": "",
	} {
		stdout, stderr, _ := c.run(t, strings.Split(args, " ")...) // the fake client cannot resize
		output := strings.Join(strings.Fields(stdout+stderr), " ")
		if strings.Contains(output, "cannot be read") || !strings.Contains(output, want) {
			t.Errorf("%s: want %q\n%s", args, want, stdout+stderr)
		}
	}
	delete(made, "create selfsubjectaccessreviews.authorization.k8s.io") // allowed for every user
	granted := pluginRoles(t)
	for _, verb := range []string{"get", "create"} { // by Access.Round, which is not set here
		delete(granted, verb+" pods/portforward")
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(granted))); diff != "" {
		t.Errorf("the roles (-requested +granted):\n%s", diff)
	}
}
