package flowcontrol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/actuator/podresize"
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// Gate says whether this cluster lets us resize at all. It is closed until it was checked. As a part
// of the manager it asks the API server again and again.
type Gate struct {
	Discovery podresize.Discovery
	API       podresize.Creator

	setting sync.Mutex // one change at a time, with its call of Changed
	mu      sync.Mutex
	reason  reasons.Reason // "": open
	why     string
	// InFlight counts resize requests that the API server has not answered.
	InFlight atomic.Int64
	// recheck asks for a check before its time.
	recheck chan struct{}
	// Changed is called when the gate has opened or closed; nil: no one is to be told.
	Changed func(reason reasons.Reason, why string)
	Log     *slog.Logger
}

// NewGate is a closed gate.
func NewGate(d podresize.Discovery, api podresize.Creator) *Gate {
	return &Gate{Discovery: d, API: api, recheck: make(chan struct{}, 1),
		reason: reasons.ServerUnavailable, why: "the API server has not been asked yet"}
}

// Closed says why nothing may be resized, in a word and in a sentence; "" where it may.
func (g *Gate) Closed() (reasons.Reason, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reason, g.why
}

// Published is what the switch says about the gate: nothing before the first check.
func (g *Gate) Published() (reason, message string) {
	r, why := g.Closed()
	if r == reasons.ServerUnavailable {
		return "", ""
	}
	return string(r), why
}

// Set opens (reason "") or closes the gate.
func (g *Gate) Set(reason reasons.Reason, why string) {
	g.setting.Lock()
	defer g.setting.Unlock()
	g.mu.Lock()
	changed := g.reason != reason
	g.reason, g.why = reason, why
	g.mu.Unlock()
	if changed && g.Changed != nil {
		g.Changed(reason, why)
	}
}

// Recheck asks for a check soon.
func (g *Gate) Recheck() {
	select {
	case g.recheck <- struct{}{}:
	default:
	}
}

// Check asks the API server and sets the gate; without an answer it stays as it is.
func (g *Gate) Check(ctx context.Context) error {
	switch list, err := g.Discovery.ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.GroupVersion.String()); {
	case apierrors.IsNotFound(err), err == nil && !complete(list.APIResources):
		g.Set(reasons.CRDNotInstalled, reasons.CRDNotInstalled.Sentence())
		return nil
	case err != nil:
		return fmt.Errorf("discover the resources of %s: %w", v1alpha1.GroupVersion, err)
	}
	served, err := podresize.Served(ctx, g.Discovery)
	if err != nil {
		return err
	}
	if !served.Yes {
		g.Set(reasons.ResizeNotServed, served.Why)
		return nil
	}
	allowed, err := podresize.Allowed(ctx, g.API, "")
	if err != nil {
		return err
	}
	if !allowed.Yes {
		g.Set(reasons.PermissionMissing, allowed.Why)
		return nil
	}
	g.Set("", "")
	return nil
}

// complete says whether the kinds are there that the controller cannot do without.
func complete(resources []metav1.APIResource) bool {
	for _, name := range []string{"podallocations", "nodeallocations"} {
		if !slices.ContainsFunc(resources, func(r metav1.APIResource) bool { return r.Name == name }) {
			return false
		}
	}
	return true
}

// Ready is a readiness check: an installation that cannot resize is not ready.
func (g *Gate) Ready(*http.Request) error {
	if reason, why := g.Closed(); reason != "" {
		return errors.New(string(reason) + ": " + why)
	}
	return nil
}

// The API server is asked at these intervals; a missing CRD more often, as that costs one cheap
// request.
const (
	checkEvery   = time.Minute
	checkMissing = 5 * time.Second
)

// NeedLeaderElection is false: a standby replica reports, too, whether it could act.
func (*Gate) NeedLeaderElection() bool { return false }

// Start checks until ctx ends.
func (g *Gate) Start(ctx context.Context) error {
	for {
		if err := g.Check(ctx); err != nil {
			g.Log.Error("cannot tell whether resizing is possible", "err", err)
		}
		wait := checkEvery
		if reason, _ := g.Closed(); reason == reasons.CRDNotInstalled || reason == reasons.ServerUnavailable {
			wait = checkMissing
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.recheck:
		case <-time.After(wait):
		}
	}
}
