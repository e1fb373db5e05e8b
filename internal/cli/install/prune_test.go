package install

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/kube"
)

// role is a ClusterRole, or a Role if there is a namespace, without rights.
func role(namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("rbac.authorization.k8s.io/v1")
	o.SetKind("ClusterRole")
	if namespace != "" {
		o.SetKind("Role")
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// there says whether the server has an object.
func (s *site) there(o *unstructured.Unstructured) bool {
	s.t.Helper()
	err := s.Client.Get(s.t.Context(), client.ObjectKeyFromObject(o), o.DeepCopy())
	if !apierrors.IsNotFound(err) {
		s.ok(err)
	}
	return err == nil
}

// TestPrunes: an upgrade deletes the objects of the plugin that its version does not have, and so does an uninstallation;
// a dry run names them. An object that only looks like one of the plugin's is left alone.
func TestPrunes(t *testing.T) {
	s := newSite(t, keepers...)
	ctx := t.Context()
	s.namespace("shop")
	r := &run{Access: s.access, out: io.Discard}
	old := func() (objects []*unstructured.Unstructured) {
		objects = []*unstructured.Unstructured{role("", "mbcas-old"), role(kube.SystemNamespace, "mbcas-old")}
		label(objects)
		for _, o := range objects {
			_, err := r.apply(ctx, o)
			s.ok(err)
		}
		return objects
	}
	s.install(Options{Tag: "v0.1.0"})
	copied, unlabelled, elsewhere := role("", "copied"), role("", "unlabelled"), role("shop", "elsewhere")
	label([]*unstructured.Unstructured{copied, elsewhere})
	s.ok(s.Client.Create(ctx, copied, client.FieldOwner("kubectl-create")))
	for _, o := range []*unstructured.Unstructured{unlabelled, elsewhere} {
		_, err := r.apply(ctx, o)
		s.ok(err)
	}
	others := []*unstructured.Unstructured{copied, unlabelled, elsewhere}

	stale := old()
	ours := s.objects()
	out := s.upgrade(Options{Tag: "v0.1.0", DryRun: true})
	for _, want := range []string{"  ClusterRole mbcas-old: deleted", "  Role mbcas-old: deleted", "nothing was written"} {
		if !strings.Contains(out, want) {
			t.Errorf("the dry run of an upgrade printed %q, want %q in it", out, want)
		}
	}
	if strings.Contains(out, "copied") || strings.Contains(out, "unlabelled") || strings.Contains(out, "elsewhere") {
		t.Errorf("the dry run names objects of others: %q", out)
	}
	for _, o := range stale {
		if !s.there(o) {
			t.Errorf("a dry run deleted %s", nameOf(o))
		}
	}
	s.upgrade(Options{Tag: "v0.1.0"})
	for _, o := range stale {
		if s.there(o) {
			t.Errorf("an upgrade left %s", nameOf(o))
		}
	}
	if now := s.objects(); !equality.Semantic.DeepEqual(now, ours) {
		t.Error("an upgrade to the same version changed an object")
	}

	stale = old()
	s.playJobs(func(*batchv1.Job) error { return nil })
	var text strings.Builder
	s.ok(Uninstall(ctx, s.access, &text, RemoveOptions{DryRun: true, Timeout: time.Minute}))
	if out := text.String(); !strings.Contains(out, "  ClusterRole mbcas-old\n") || !strings.Contains(out, "  Role mbcas-old\n") {
		t.Errorf("the dry run of an uninstallation printed %q", out)
	}
	s.ok(Uninstall(ctx, s.access, io.Discard, RemoveOptions{Timeout: time.Minute}))
	for _, o := range stale {
		if s.there(o) {
			t.Errorf("an uninstallation left %s", nameOf(o))
		}
	}
	for _, o := range others {
		if !s.there(o) {
			t.Errorf("%s of another was deleted", nameOf(o))
		}
	}
}

// TestFollowsARunningJob: an uninstallation that is repeated while its Job runs follows that one, and makes no second.
func TestFollowsARunningJob(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	s.install(Options{Tag: "v0.1.0"})
	var out strings.Builder
	r := &run{Access: s.access, out: &out}
	first, err := r.createJob(ctx, time.Minute)
	s.ok(err)
	s.playJobs(func(*batchv1.Job) error { return nil })
	s.ok(r.runRestore(ctx, time.Minute))
	jobs := func() int {
		t.Helper()
		list := &batchv1.JobList{}
		s.ok(s.Client.List(ctx, list, client.InNamespace(kube.SystemNamespace)))
		return len(list.Items)
	}
	if n := jobs(); n != 1 || !strings.Contains(out.String(), "Job "+first.Name+" restores") {
		t.Errorf("there are %d Jobs, and it printed %q", n, out.String())
	}
	s.ok(r.runRestore(ctx, time.Minute)) // the first has ended
	if n := jobs(); n != 2 {
		t.Errorf("after the Job has ended there are %d Jobs, want another one", n)
	}
}

// TestDevIsNoUpgrade: a plugin that is no release takes a release to the tag dev only if the tag is given.
func TestDevIsNoUpgrade(t *testing.T) {
	s := newSite(t)
	s.install(Options{Tag: "v0.1.0"})
	before := s.objects()
	err := Upgrade(t.Context(), s.access, io.Discard, Options{Tag: devTag})
	refuses(t, "a development build", err, "MBCAS v0.1.0 is installed", "development build", "--tag dev")
	if !equality.Semantic.DeepEqual(s.objects(), before) {
		t.Error("it changed an object")
	}
	s.upgrade(Options{Tag: devTag, TagGiven: true})
	s.upgrade(Options{Tag: devTag}) // from dev to dev
	if image := s.deployment().Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":dev") {
		t.Errorf("the controller has the image %s", image)
	}
}

// TestImageFlags: a registry or a tag that no image can have is refused, with what is wanted.
func TestImageFlags(t *testing.T) {
	for value, fits := range map[string]bool{
		"ghcr.io/mbcas": true, "localhost:5000": true, "localhost:5000/a/b": true, "mbcas.io": true, "[::1]:5000/mbcas": true,
		"registry.example.com/team-a/mbcas_x": true, "10.0.0.1:5000/mbcas": true,
		"https://ghcr.io/mbcas": false, "ghcr.io/mbcas/": false, "ghcr.io/my images": false, " ghcr.io": false,
		"ghcr.io/mbcas:v0.1.0": false, "ghcr.io/mbcas@sha256:0123": false, "ghcr.io/MBCAS": false, "ghcr.io//mbcas": false,
		"ghcr.io/mbcas\n": false, "/mbcas": false, "-r": false,
	} {
		o, err := parsed("--registry=" + value)
		if fits && (err != nil || o.Registry != value || o.TagGiven) {
			t.Errorf("--registry %q: %v", value, err)
		} else if !fits {
			refuses(t, "registry "+value, err, "--registry", "ghcr.io/mbcas", "--tag")
		}
	}
	for value, fits := range map[string]bool{
		"v0.1.0": true, "dev": true, "v0.1.0-rc.1": true, "": false, "v0 1": false, "a:b": false, "sha256@x": false, ".v1": false,
		strings.Repeat("a", 129): false,
	} {
		if o, err := parsed("--tag=" + value); fits != (err == nil) || !o.TagGiven {
			t.Errorf("--tag %q: %v", value, err)
		}
	}
}

// parsed are the options of a command line.
func parsed(args ...string) (o Options, err error) {
	cmd := &cobra.Command{}
	check := bindOptions(cmd, &o, "v0.1.0")
	if err := cmd.ParseFlags(args); err != nil {
		return o, err
	}
	return o, check()
}
