package controller

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/internal/constraints"
)

// vpaFollower looks for VerticalPodAutoscalers as they are installed and removed.
type vpaFollower struct {
	r *Reconciler
	// cache holds VPAs and nothing else: the controller starts only once everything in the manager's is there, and VPAs that cannot
	// all be read would keep it from that.
	cache cache.Cache

	looked  bool
	checked time.Time // when the right to follow them was last checked
}

func newVPAFollower(r *Reconciler, mgr ctrl.Manager) (*vpaFollower, error) {
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: dropWriters,
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	return &vpaFollower{r: r, cache: own}, nil
}

// checkVPAs is how often the cluster is asked for VPAs, with one cheap request. Who installs them means to use them, and a VPA acts within
// a minute: it must not build on a limit of ours.
const checkVPAs = 5 * time.Second

// lookWithin is how long one look may take, with the first list of VPAs: nodes wait for the first look, and then do without.
const lookWithin = 10 * time.Second

// NeedLeaderElection is false: a replica that becomes the leader knows the VPAs by then.
func (f *vpaFollower) NeedLeaderElection() bool { return false }

// Start looks until it is told to stop.
func (f *vpaFollower) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- f.cache.Start(ctx) }()
	f.cache.WaitForCacheSync(ctx) // one that has not started counts an informer as full
	said := ""
	for {
		switch err := f.look(ctx); {
		case ctx.Err() != nil:
		case err == nil:
			said = ""
		case unanswered(err) != said:
			said = unanswered(err)
			f.r.Log.Error("cannot tell which pods a VerticalPodAutoscaler writes", "held", f.r.vpas.now() == vpasUnknown, "err", err)
		}
		if !f.looked {
			f.looked = true
			close(f.r.vpas.looked)
		}
		select {
		case err := <-ended: // told to stop
			return err
		case <-time.After(checkVPAs):
		}
	}
}

// look finds out whether there are VPAs, and follows those that are. Where the API server does not answer, what was known stands; while
// they are there and cannot be followed, they are not known.
func (f *vpaFollower) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	before := f.r.vpas.now()
	switch served, err := vpasServed(ctx, f.r.Gate.Discovery); {
	case err != nil && before == vpasUnknown:
		return f.lose(ctx, err)
	case err != nil:
		return err
	case !served:
		return f.leave(ctx)
	case before == vpasFollowed && f.r.Now().Sub(f.checked) < checkEvery:
		return nil
	}
	if before == vpasNone { // until they are read, any pod may be one of theirs
		f.r.vpas.set(vpasUnknown, "they have just been installed", nil)
	}
	err := f.may(ctx)
	if before == vpasFollowed && !errors.As(err, &noRight{}) {
		return err
	}
	if err == nil {
		err = f.follow(ctx)
	}
	if err != nil {
		return f.lose(ctx, err)
	}
	return nil
}

// may says whether the controller has the rights that following takes, by a noRight if it has not.
func (f *vpaFollower) may(ctx context.Context) error {
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: constraints.VPAKind.Group, Resource: "verticalpodautoscalers"},
		}}
		if err := f.r.Gate.API.Create(ctx, review); err != nil {
			return fmt.Errorf("ask whether verticalpodautoscalers may be followed (%s): %w", verb, err)
		}
		if !review.Status.Allowed {
			return noRight{verb}
		}
	}
	f.checked = f.r.Now()
	return nil
}

// follow fills the cache of VPAs, and has nodes looked at when one changes. What a VPA recommends is no news.
func (f *vpaFollower) follow(ctx context.Context) error {
	// An informer tries for ever what cannot be read, and does not say why.
	if err := f.r.Live.List(ctx, vpaList(), client.Limit(1)); err != nil {
		return fmt.Errorf("list VerticalPodAutoscalers: %w", err)
	}
	informer, err := f.cache.GetInformer(ctx, anyVPA(), cache.BlockUntilSynced(true))
	if err != nil {
		return fmt.Errorf("watch VerticalPodAutoscalers: %w", err)
	}
	wake := f.r.requeue.allNodes
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { wake() }, DeleteFunc: func(any) { wake() },
		UpdateFunc: func(old, new any) {
			before, ok := old.(*unstructured.Unstructured)
			after, ok2 := new.(*unstructured.Unstructured)
			if !ok || !ok2 || !reflect.DeepEqual(constraints.VPAOf(before), constraints.VPAOf(after)) {
				wake()
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch VerticalPodAutoscalers: %w", err)
	}
	f.note(vpasFollowed, "", f.cache)
	f.r.Log.Info("VerticalPodAutoscalers are followed")
	return nil
}

// lose gives up to follow VPAs, because of err.
func (f *vpaFollower) lose(ctx context.Context, err error) error {
	f.note(vpasUnknown, unanswered(err), nil)
	return errors.Join(err, f.drop(ctx))
}

// leave takes note that there are no VPAs.
func (f *vpaFollower) leave(ctx context.Context) error {
	f.note(vpasNone, "", nil)
	return f.drop(ctx)
}

// note sets what is known, and has all nodes looked at if that is news for them.
func (f *vpaFollower) note(state vpaState, why string, reader client.Reader) {
	if f.r.vpas.set(state, why, reader) && f.looked {
		f.r.requeue.allNodes()
	}
}

// drop stops the watch, if there is one. Nobody reads from the cache by then.
func (f *vpaFollower) drop(ctx context.Context) error {
	if err := f.cache.RemoveInformer(ctx, anyVPA()); err != nil {
		return fmt.Errorf("stop watching VerticalPodAutoscalers: %w", err)
	}
	return nil
}

func anyVPA() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(constraints.VPAKind)
	return o
}
