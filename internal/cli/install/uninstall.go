package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/cli/cluster"
	"github.com/mbcas/mbcas/internal/cli/format"
	"github.com/mbcas/mbcas/internal/restore"
)

// RemoveOptions are those of an uninstallation.
type RemoveOptions struct {
	// KeepCRDs leaves the CRDs with all PodAllocations, NodeAllocations and DemandSignals.
	KeepCRDs bool
	// Force goes on where pods are not at their declared limits. Then the records of declared limits stay: the CRDs,
	// and the namespace with its ConfigMaps.
	Force bool
	// DryRun says what would be done.
	DryRun bool
	// Timeout is for the restore, and again for each deletion.
	Timeout time.Duration
}

// Uninstall returns every pod to its declared limits, and removes MBCAS.
func Uninstall(ctx context.Context, a *cluster.Access, out io.Writer, o RemoveOptions) error {
	r := &run{a, out, Options{DryRun: o.DryRun}}
	if err := r.checkSystem(); err != nil {
		return err
	}
	now, err := r.read(ctx)
	switch {
	case err != nil:
		return err
	case now.helm:
		return refuseHelm("uninstall", now.release)
	case len(now.live)+len(now.stale) == 0:
		return errors.New("MBCAS is not installed in this cluster: none of its objects exists")
	case o.DryRun:
		return r.wouldRemove(ctx, now, o)
	}
	if err := r.restoreAll(ctx, now, o); err != nil {
		return err
	}
	const mend = "nothing was deleted. Mend what keeps them and uninstall again, restore them with your own rights (kubectl " +
		"mbcas restore --all -A), or give --force to leave them. MBCAS is paused; to keep it: kubectl mbcas resume"
	if _, err := r.checkRestored(ctx, o, mend); err != nil {
		return err
	}
	return r.removeAll(ctx, now, o)
}

// restoreAll restores all pods with the Job of the installation. Without the template of the Job and without the
// controller, an earlier uninstallation has run it.
func (r *run) restoreAll(ctx context.Context, now *installation, o RemoveOptions) (err error) {
	switch {
	case now.live[template] != nil:
		err = r.runRestore(ctx, o.Timeout)
	case now.installed():
		err = fmt.Errorf("%s of namespace %s is missing, so no Job can restore the pods; bring it back with: kubectl mbcas "+
			"upgrade", template, r.System)
	}
	if err != nil && (!o.Force || ctx.Err() != nil) {
		return fmt.Errorf("%w; nothing was deleted. Mend the cause and uninstall again, or give --force. MBCAS may be "+
			"paused; to keep it: kubectl mbcas resume", err)
	} else if err != nil {
		r.say("%v. Going on, as --force says.", err)
	}
	return nil
}

// checkRestored counts the pods that are not at their declared limits. If there are any it is an error, with that
// advice, unless the uninstallation is forced.
func (r *run) checkRestored(ctx context.Context, o RemoveOptions, advice string) (left int, err error) {
	found, err := restore.Unrestored(ctx, r.Client, r.System)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	var names []string
	for _, d := range found {
		names = append(names, d.Pod)
	}
	said := fmt.Sprintf("%s not at the declared limits: %s", format.Are(len(names), "pod"), format.Few(names))
	if !o.Force {
		return len(names), fmt.Errorf("%s; %s", said, advice)
	}
	r.say("%s. Going on, as --force says: they keep their limits until they are replaced or restored.", said)
	return len(names), nil
}

// removable are the objects that an uninstallation deletes, in that order.
func removable(now *installation, o RemoveOptions) ([]*unstructured.Unstructured, error) {
	objects, err := everything()
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
		return now.live[nameOf(u)] == nil || u.GetKind() == crdKind && o.KeepCRDs
	})
	objects = append(objects, now.stale...)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(b) - rank(a) })
	return objects, nil
}

// isProgram says whether an object runs agents or the controller.
func isProgram(u *unstructured.Unstructured) bool {
	return u.GetKind() == "Deployment" || u.GetKind() == "DaemonSet"
}

// holdsRecords says whether declared limits are recorded in an object, or in what goes with it.
func holdsRecords(u *unstructured.Unstructured) bool {
	return u.GetKind() == crdKind || u.GetKind() == "Namespace"
}

// removeAll deletes the programs, and all else once no pod needs it: the pause may have been ended meanwhile.
func (r *run) removeAll(ctx context.Context, now *installation, o RemoveOptions) error {
	objects, err := removable(now, o)
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		r.say("Nothing was left to delete.")
	}
	if err := r.removeIf(ctx, now, objects, isProgram); err != nil {
		return err
	}
	if err := r.waitProgramsGone(ctx); err != nil {
		return err
	}
	left, err := r.checkRestored(ctx, o, "MBCAS resized them after the restore: was it resumed? Its programs are deleted, "+
		"and the records of declared limits are not. Uninstall again")
	if err != nil {
		return err
	}
	needed := left > 0
	if needed {
		objects = slices.DeleteFunc(objects, holdsRecords)
	}
	others := func(u *unstructured.Unstructured) bool { return !isProgram(u) }
	if err := r.removeIf(ctx, now, objects, others); err != nil {
		return err
	}
	if err := r.waitGone(ctx, objects, o.Timeout); err != nil {
		return err
	}
	return r.sayLeft(ctx, now, o, needed)
}

// removeIf deletes some of the objects. One that is gone is no error, and one that was made anew meanwhile is not
// deleted.
func (r *run) removeIf(
	ctx context.Context, now *installation, objects []*unstructured.Unstructured, some func(*unstructured.Unstructured) bool,
) error {
	for _, u := range objects {
		if !some(u) {
			continue
		}
		uid := u.GetUID() // of a stale object
		if live := now.live[nameOf(u)]; live != nil {
			uid = live.GetUID()
		}
		if err := r.Client.Delete(ctx, u, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return explained("delete", u, err)
		}
	}
	return nil
}

// wouldRemove says what a dry run leaves undone.
func (r *run) wouldRemove(ctx context.Context, now *installation, o RemoveOptions) error {
	left, err := restore.Unrestored(ctx, r.Client, r.System)
	if err != nil {
		return err
	}
	objects, err := removable(now, o)
	if err != nil {
		return err
	}
	r.say("%s would be restored:", format.Plural(len(left), "pod"))
	for _, d := range left {
		r.say("  %s", d)
	}
	r.say("%s would be deleted then:", format.Plural(len(objects), "object"))
	for _, u := range objects {
		r.say("  %s", nameOf(u))
	}
	if crds := now.crds(); o.KeepCRDs && crds > 0 {
		r.say("%s with their objects would stay; --keep-crds=false deletes them, too.", format.Plural(crds, "CRD"))
	}
	if err := r.sayStays(ctx, now); err != nil {
		return err
	}
	r.say("Dry run: nothing was written.")
	return nil
}

// crds counts the CRDs that the cluster has.
func (i *installation) crds() (n int) {
	for _, u := range i.live {
		if u.GetKind() == crdKind {
			n++
		}
	}
	return n
}

// programsEnd is how long the pods of MBCAS may take to end. On a node that does not answer they never do.
const programsEnd = 2 * time.Minute

// waitProgramsGone waits until no pod of MBCAS is left, as one without its rights logs errors. It goes on without those
// that do not end.
func (r *run) waitProgramsGone(ctx context.Context) error {
	ours := client.MatchingLabels{"app.kubernetes.io/name": "mbcas"}
	err := r.until(ctx, programsEnd, func(ctx context.Context) (string, error) {
		var pods corev1.PodList
		if err := r.Client.List(ctx, &pods, client.InNamespace(r.System), ours); err != nil {
			return "", fmt.Errorf("list pods of namespace %s: %w", r.System, err)
		}
		n := 0
		for i := range pods.Items {
			if pods.Items[i].Labels["app.kubernetes.io/component"] != "restore" {
				n++
			}
		}
		if n == 0 {
			return "", nil
		}
		return fmt.Sprintf("pods of MBCAS that have not ended: %d", n), nil
	})
	if late := (lateError{}); errors.As(err, &late) {
		r.say("%v; going on.", err)
		return nil
	}
	return err
}

// sayLeft says what stays.
func (r *run) sayLeft(ctx context.Context, now *installation, o RemoveOptions, needed bool) error {
	r.say("MBCAS is gone.")
	if needed {
		r.say("The CRDs, and namespace %s with its ConfigMaps, stay: they hold declared limits. When the pods are restored "+
			"(kubectl mbcas restore --all -A): kubectl mbcas uninstall", r.System)
	} else if o.KeepCRDs && now.live[crdKind+" "+cluster.CRDName] != nil {
		r.say("The CRDs with their objects stay. To delete them, too: kubectl mbcas uninstall --keep-crds=false")
	}
	return r.sayStays(ctx, now)
}

// sayStays says what no uninstallation deletes.
func (r *run) sayStays(ctx context.Context, now *installation) error {
	if folder := now.weightsRecord(); folder != "" {
		r.say("The folder %s stays on the disks of the nodes, and may be deleted: see docs/weights.md, Leave.", folder)
	}
	return r.sayLabels(ctx)
}
