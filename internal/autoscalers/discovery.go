package autoscalers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/internal/constraints"
)

// Discovery watches VerticalPodAutoscalers as they are installed and removed.
type Discovery struct {
	VPAs *VPAs
	API  podresize.Discovery
	// Reviews asks the API server for rights.
	Reviews podresize.Creator
	// Live reads from the API server itself.
	Live client.Reader
	Now  func() time.Time
	Log  *slog.Logger
	// Interval is how often the cluster is asked for VPAs, with one cheap request: DiscoveryInterval where it ships.
	Interval time.Duration
	// Changed is called with the namespace when a VPA has changed, and with "" when what is known of VPAs has.
	Changed func(namespace string)

	// cache holds VPAs and nothing else: the controller starts only once the manager's caches are full, and VPAs that cannot all be
	// read would keep it from that.
	cache         cache.Cache
	found         bool      // the first discovery is over
	rightsChecked time.Time // when the rights were last checked
}

// Setup has the manager run the discovery. Lists wait for the first one from then on.
func (d *Discovery) Setup(mgr ctrl.Manager) (err error) {
	d.cache, err = cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err == nil {
		d.VPAs.found = make(chan struct{})
		err = mgr.Add(d)
	}
	if err != nil {
		return fmt.Errorf("set up the discovery of VerticalPodAutoscalers: %w", err)
	}
	return nil
}

const (
	// DiscoveryInterval: a VPA that has just been installed acts within a minute, and must not build on a limit that
	// MBCAS set.
	DiscoveryInterval = 5 * time.Second
	// timeout bounds one discovery with the first list of VPAs: nodes wait for the first one, and then do without.
	timeout = 10 * time.Second
	// rightsInterval is how often the right to watch VPAs is checked.
	rightsInterval = time.Minute
)

// NeedLeaderElection is false: a replica that becomes the leader knows the VPAs by then.
func (d *Discovery) NeedLeaderElection() bool { return false }

// Start looks for VPAs until ctx ends.
func (d *Discovery) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- d.cache.Start(ctx) }()
	d.cache.WaitForCacheSync(ctx) // a cache that has not started counts an informer as full
	logged := ""
	for {
		switch err := d.discover(ctx); {
		case ctx.Err() != nil:
		case err == nil:
			logged = ""
		case Cause(err) != logged:
			logged = Cause(err)
			d.Log.Error("cannot tell which pods a VerticalPodAutoscaler writes", "podsWait", d.VPAs.State() == VPAsUnknown, "err", err)
		}
		if !d.found {
			d.found = true
			close(d.VPAs.found)
		}
		select {
		case err := <-ended: // ctx has ended
			return err
		case <-time.After(d.Interval):
		}
	}
}

// discover finds out whether the cluster serves VPAs, and watches them if so. If the API server does not answer, what was known
// stays; if VPAs are served and cannot be watched, they are unknown.
func (d *Discovery) discover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	before := d.VPAs.State()
	switch served, err := d.served(ctx); {
	case err != nil && before == VPAsUnknown:
		return d.lose(ctx, err)
	case err != nil:
		return err
	case !served:
		d.set(NoVPAs, "", nil)
		return d.unwatch(ctx)
	case before == VPAsWatched && d.Now().Sub(d.rightsChecked) < rightsInterval:
		return nil
	}
	if before == NoVPAs { // until they are read, any pod may belong to one
		d.VPAs.set(VPAsUnknown, "they have just been installed", nil)
	}
	err := d.checkRights(ctx)
	if before == VPAsWatched && !errors.As(err, &missingRight{}) {
		return err
	}
	if err == nil {
		err = d.watch(ctx)
	}
	if err != nil {
		return d.lose(ctx, err)
	}
	return nil
}

// served asks whether the cluster has VPAs.
func (d *Discovery) served(ctx context.Context) (bool, error) {
	group := constraints.VPAKind.GroupVersion().String()
	list, err := d.API.ServerResourcesForGroupVersionWithContext(ctx, group)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("discover the resources of %s: %w", group, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == constraints.VPAKind.Kind }), nil
}

// checkRights returns a missingRight if the controller may not watch VPAs.
func (d *Discovery) checkRights(ctx context.Context) error {
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: constraints.VPAKind.Group, Resource: "verticalpodautoscalers"},
		}}
		if err := d.Reviews.Create(ctx, review); err != nil {
			return fmt.Errorf("ask whether the controller may %s verticalpodautoscalers: %w", verb, err)
		}
		if !review.Status.Allowed {
			return missingRight{verb}
		}
	}
	d.rightsChecked = d.Now()
	return nil
}

// watch fills the cache of VPAs, and reports changes from then on. A new recommendation is no change.
func (d *Discovery) watch(ctx context.Context) error {
	// An informer tries for ever what cannot be read, and does not say why.
	if err := d.Live.List(ctx, VPAList(), client.Limit(1)); err != nil {
		return fmt.Errorf("list VerticalPodAutoscalers: %w", err)
	}
	informer, err := d.cache.GetInformer(ctx, anyVPA(), cache.BlockUntilSynced(true))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { d.Changed(namespaceOf(o)) }, DeleteFunc: func(o any) { d.Changed(namespaceOf(o)) },
			UpdateFunc: func(old, changed any) {
				before, ok := old.(*unstructured.Unstructured)
				after, ok2 := changed.(*unstructured.Unstructured)
				if !ok || !ok2 || !reflect.DeepEqual(constraints.VPAOf(before), constraints.VPAOf(after)) {
					d.Changed(namespaceOf(changed))
				}
			},
		})
	}
	if err != nil {
		return fmt.Errorf("watch VerticalPodAutoscalers: %w", err)
	}
	d.set(VPAsWatched, "", d.cache)
	d.Log.Info("VerticalPodAutoscalers are watched")
	return nil
}

// namespaceOf is that of an object of an informer, or of the last that is known of a deleted one; "" where that is unknown.
func namespaceOf(o any) string {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if vpa, ok := o.(*unstructured.Unstructured); ok {
		return vpa.GetNamespace()
	}
	return ""
}

// lose makes VPAs unknown, because of err.
func (d *Discovery) lose(ctx context.Context, err error) error {
	d.set(VPAsUnknown, Cause(err), nil)
	return errors.Join(err, d.unwatch(ctx))
}

func (d *Discovery) set(state VPAState, cause string, reader client.Reader) {
	if d.VPAs.set(state, cause, reader) && d.found {
		d.Changed("")
	}
}

// unwatch stops the watch, if there is one. The cache is no longer read by then.
func (d *Discovery) unwatch(ctx context.Context) error {
	if err := d.cache.RemoveInformer(ctx, anyVPA()); err != nil {
		return fmt.Errorf("stop watching VerticalPodAutoscalers: %w", err)
	}
	return nil
}

func anyVPA() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(constraints.VPAKind)
	return o
}
