// Package install puts MBCAS on a cluster, changes its version and removes it, with the manifests that are inside the
// plugin.
//
// What it promises, each a test of the same name:
//   - InstallsWhatConfigHas: the objects are those of the folder config, with the images and the mode asked for.
//   - RefusesHelm: an installation of Helm is left to Helm.
//   - RefusesSkips: an upgrade or a downgrade goes one minor version at a time.
//   - SaysWhatChanges: an upgrade names each field that it changes, and a second one changes nothing.
//   - Prunes: an upgrade and an uninstallation delete what this version does not have, and nothing of others.
//   - RefusedWhole: an upgrade of which the API server refuses a part writes nothing.
//   - NamesLabelled: an installation names the namespaces whose label enforces, before it writes anything.
//   - RestoresFirst: nothing is deleted while a pod is not at its declared limits, unless it is forced.
//   - LeavesWhatItSays: an uninstallation leaves the CRDs with their objects, or nothing at all.
//   - DryRunWritesNothing: with --dry-run nothing is written.
package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/restore"
)

// pollInterval is the time between two reads of what a command waits for.
const pollInterval = 500 * time.Millisecond

// Options are those of an installation or an upgrade.
type Options struct {
	// Mode is the mode of namespaces without a label; "": as installed, recommend for a new installation.
	Mode string
	// Namespaces get the label mbcas.io/mode=enforce.
	Namespaces []string
	// Registry, and path in it, of the images agent and controller; "": as installed, that of the release for a new
	// installation. Tag is their tag. TagGiven: it was asked for; otherwise it is that of the plugin.
	Registry, Tag string
	TagGiven      bool
	// Force takes fields over that another client of the API server has set.
	Force bool
	// DryRun says what would be done.
	DryRun bool
	// Wait is how long to wait until every agent and replica is ready; 0: not at all.
	Wait time.Duration
}

// run is one command at work.
type run struct {
	*cluster.Access
	out io.Writer
	o   Options
}

func (r *run) say(text string, args ...any) { fmt.Fprintf(r.out, text+"\n", args...) }

// Install puts MBCAS on a cluster that has none.
func Install(ctx context.Context, a *cluster.Access, out io.Writer, o Options) error {
	r := &run{a, out, o}
	now, err := r.prepare(ctx, "install")
	if err != nil {
		return err
	}
	if now.installed() {
		return fmt.Errorf("MBCAS %s is installed already; change it with: kubectl mbcas upgrade", now.version())
	}
	s := settingsFor(o)
	r.say("Installing MBCAS %s in mode %s.", s.version(), s.mode)
	if err := r.sayEnforced(ctx); err != nil {
		return err
	}
	if err := r.put(ctx, now, s); err != nil {
		return err
	}
	return r.finish(ctx, s)
}

// Upgrade changes an installation to the manifests of this plugin.
func Upgrade(ctx context.Context, a *cluster.Access, out io.Writer, o Options) error {
	r := &run{a, out, o}
	now, err := r.prepare(ctx, "upgrade")
	if err != nil {
		return err
	}
	if !now.installed() {
		return errors.New("MBCAS is not installed in this cluster; install it with: kubectl mbcas install")
	}
	s := now.settings(o)
	if from := now.version(); s.version() == devTag && !o.TagGiven && release.MatchString(from) {
		return fmt.Errorf("MBCAS %s is installed, and this plugin is a development build, whose images have the tag %s; use the "+
			"plugin of a release, or give --tag %[2]s", from, devTag)
	}
	if err := checkSkew(now.version(), s.version()); err != nil {
		return err
	}
	r.say("MBCAS %s -> %s, mode %s -> %s.", now.version(), s.version(), now.mode(), s.mode)
	if err := r.put(ctx, now, s); err != nil {
		return err
	}
	return r.finish(ctx, s)
}

// checkSystem refuses another namespace than that of the manifests.
func (r *run) checkSystem() error {
	if r.System != kube.SystemNamespace {
		return fmt.Errorf("namespace %s: MBCAS runs in %s only, as its policies name that; leave out --system-namespace",
			r.System, kube.SystemNamespace)
	}
	return nil
}

// prepare checks what has to hold before anything is written, and reads what is installed.
func (r *run) prepare(ctx context.Context, verb string) (*installation, error) {
	if err := r.checkSystem(); err != nil {
		return nil, err
	}
	answer, err := podresize.Served(ctx, r.Discovery)
	if err != nil {
		return nil, err
	}
	if !answer.Yes {
		return nil, fmt.Errorf("this cluster cannot resize pods: %s; MBCAS needs Kubernetes 1.33 or later", answer.Why)
	}
	now, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	if now.helm {
		return nil, refuseHelm(verb, now.release)
	}
	if u := now.deleting; u != nil {
		object := strings.ToLower(u.GetKind()) + "/" + u.GetName()
		if u.GetNamespace() != "" {
			object += " -n " + u.GetNamespace()
		}
		return nil, fmt.Errorf("%s is being deleted; try again after: kubectl wait --for=delete %s", nameOf(u), object)
	}
	return now, r.checkNamespaces(ctx)
}

// refuseHelm names the command of Helm for the same; release "" is that of a tool that renders the chart itself.
func refuseHelm(verb, release string) error {
	if release == "" {
		return errors.New("MBCAS is installed from the Helm chart, by a tool that renders it (the label " +
			"app.kubernetes.io/managed-by is Helm, and no release is named), which would undo the change; make it there: " +
			"docs/helm.md, GitOps")
	}
	command := map[string]string{
		"install":   "upgrade %s charts/mbcas --namespace %s --reset-then-reuse-values",
		"upgrade":   "upgrade %s charts/mbcas --namespace %s --reset-then-reuse-values",
		"uninstall": "uninstall %s --namespace %s --timeout 6m",
	}[verb]
	const fault = "MBCAS is installed by Helm as release %s, and Helm would not know of the change; use: helm " + "%s"
	return fmt.Errorf(fault, release, fmt.Sprintf(command, release, kube.SystemNamespace))
}

// checkNamespaces checks that the namespaces to manage exist and may be managed.
func (r *run) checkNamespaces(ctx context.Context) error {
	for _, name := range r.o.Namespaces {
		if kube.AlwaysUnmanaged(name, r.System) {
			return fmt.Errorf("namespace %s: MBCAS never manages its pods; leave it out", name)
		}
		ns, err := cluster.Get(ctx, r.Client, &corev1.Namespace{}, client.ObjectKey{Name: name})
		if err != nil {
			return err
		}
		if ns == nil {
			return fmt.Errorf("namespace %s does not exist; create it first, or leave it out", name)
		}
	}
	return nil
}

// put applies the manifests, and labels the namespaces.
func (r *run) put(ctx context.Context, now *installation, s settings) error {
	objects, err := manifests(s)
	if err != nil {
		return err
	}
	label(objects)
	if err := r.preview(ctx, now, objects); err != nil {
		return err
	}
	if err := r.applyAll(ctx, objects); err != nil {
		return err
	}
	if err := r.prune(ctx, now); err != nil {
		return err
	}
	for _, name := range r.o.Namespaces {
		if err := r.enforce(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// enforce labels a namespace.
func (r *run) enforce(ctx context.Context, name string) error {
	ns := &corev1.Namespace{}
	ns.Name = name
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, kube.ModeLabel, kube.ModeEnforce)
	options := []client.PatchOption{client.FieldOwner(kube.PluginFieldManager)}
	if r.o.DryRun {
		options = append(options, client.DryRunAll)
	}
	if err := r.Client.Patch(ctx, ns, client.RawPatch(mergePatch, patch), options...); err != nil {
		return fmt.Errorf("label namespace %s with %s=%s: %w", name, kube.ModeLabel, kube.ModeEnforce, err)
	}
	r.say("namespace %s: mode enforce.", name)
	return nil
}

// finish waits until MBCAS is at work, and says what comes next.
func (r *run) finish(ctx context.Context, s settings) error {
	if r.o.DryRun {
		r.say("Dry run: nothing was written.")
		return nil
	}
	if r.o.Wait > 0 {
		if err := r.waitReady(ctx); err != nil {
			return err
		}
	}
	effect := map[kube.Mode]string{
		kube.ModeOff:       "It ignores namespaces without the label " + kube.ModeLabel + ".",
		kube.ModeRecommend: "It changes no pod of a namespace without the label " + kube.ModeLabel + ".",
		kube.ModeEnforce:   "It resizes pods of every namespace without the label " + kube.ModeLabel + ".",
		kube.ModeRestore:   "It restores pods of every namespace without the label " + kube.ModeLabel + ".",
	}[s.mode]
	r.say("MBCAS %s runs in mode %s. %s", s.version(), s.mode, effect)
	names, err := r.enforced(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 && s.mode != kube.ModeEnforce {
		r.say("It resizes pods of %s, by the label %s=%s.", format.Few(names), kube.ModeLabel, kube.ModeEnforce)
	}
	state, err := restore.ReadState(ctx, r.Client, r.System)
	if err != nil {
		return err
	}
	if state.Paused() {
		r.say("%s. To go on: kubectl mbcas resume", state.Stopped())
	}
	next := &format.Table{}
	next.Add("  kubectl mbcas report -A", "what enforcing would bring and cost")
	next.Add("  kubectl mbcas doctor", "what works here, and what does not")
	next.Add("  kubectl mbcas mode NAMESPACE enforce", "resize the pods of a namespace")
	next.Add("  kubectl mbcas uninstall", "declared limits back, then remove MBCAS")
	r.say("\nNext:\n%s", next.String())
	return nil
}
