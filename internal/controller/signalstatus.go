package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/signal"
)

// signalStatus is what a DemandSignal says after a look at its metric.
func signalStatus(d *v1alpha1.DemandSignal, percent int32, reading signal.Reading, err error, now time.Time) v1alpha1.DemandSignalStatus {
	s := *d.Status.DeepCopy()
	s.ObservedGeneration, s.DemandPercent = d.Generation, nil
	if percent > 0 {
		s.DemandPercent = &percent
	}
	c := metav1.Condition{
		Type: v1alpha1.SignalAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMetricRead, Message: "the metric is read",
		ObservedGeneration: d.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	var bad *unread
	if errors.As(err, &bad) {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, bad.reason, bad.why
	} else {
		read := metav1.NewTime(now).Rfc3339Copy()
		s.LastReadTime, s.Current = &read, kube.DisplayQuantity(reading.Value)
	}
	if most := 1000; len(c.Message) > most {
		c.Message = strings.ToValidUTF8(c.Message[:most], "")
	}
	before := meta.FindStatusCondition(s.Conditions, c.Type)
	s.Conditions = nil
	if before != nil {
		s.Conditions = append(s.Conditions, *before)
	}
	meta.SetStatusCondition(&s.Conditions, c)
	return s
}

// laterStatus is what it says when there was no time to look at its metric.
func laterStatus(d *v1alpha1.DemandSignal, percent int32) v1alpha1.DemandSignalStatus {
	s := *d.Status.DeepCopy()
	s.DemandPercent = nil
	if percent > 0 {
		s.DemandPercent = &percent
	}
	return s
}

// switchOff has all signals that there are say that nobody looks at them, and says whether that is done.
func (r *Reconciler) switchOff(ctx context.Context) (done bool) {
	var list v1alpha1.DemandSignalList
	if err := r.Live.List(ctx, &list); err != nil {
		return kube.NotServed(err)
	}
	done = true
	off := &unread{v1alpha1.ReasonSignalsOff, "the controller looks at no metric: it was started with --signal-interval=0"}
	for i := range list.Items {
		d := &list.Items[i]
		f := &followed{}
		r.storeStatus(ctx, d, f, signalStatus(d, 0, signal.Reading{}, off, r.Now()), r.Now())
		done = done && f.unwritten == ""
	}
	return done
}

// notAsked is why a metric was not asked for, in the words of the last time where that was the same.
func notAsked(d *v1alpha1.DemandSignal) error {
	const reason = v1alpha1.ReasonMetricsAPIUnavailable
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable); c != nil && c.Reason == reason {
		return &unread{reason, c.Message}
	}
	return &unread{reason, "it was not asked this time, as it let others wait for nothing: look at the metrics adapter and its APIService"}
}

// reasonOf is the reason of an *unread; "" of anything else.
func reasonOf(err error) string {
	var bad *unread
	if errors.As(err, &bad) {
		return bad.reason
	}
	return ""
}

// announce tells of a changed reason, in the log and as an event.
func (r *Reconciler) announce(d *v1alpha1.DemandSignal, f *followed, status v1alpha1.DemandSignalStatus) {
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.SignalAvailable)
	if c == nil || c.Reason == f.reason {
		return
	}
	f.reason = c.Reason
	r.Log.Info("demand signal", "namespace", d.Namespace, "signal", d.Name, "reason", c.Reason, "why", c.Message)
	kind := corev1.EventTypeWarning
	if c.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	about := d.DeepCopy()
	about.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DemandSignal"))
	r.Events.Eventf(about, nil, kind, c.Reason, "ReadMetric", "%s", c.Message)
}

// storeStatus writes the status where it is worth it. What it could not write is tried again with the next look.
func (r *Reconciler) storeStatus(ctx context.Context, d *v1alpha1.DemandSignal, f *followed, status v1alpha1.DemandSignalStatus, now time.Time) {
	if !worthWriting(d.Status, status, now.Sub(f.written)) {
		return
	}
	why := ""
	if err := r.writeSignal(ctx, d, status); err == nil {
		f.written = now
	} else if why = err.Error(); why != f.unwritten && ctx.Err() == nil {
		r.Log.Error("status of a demand signal not written", "namespace", d.Namespace, "signal", d.Name, "err", err)
	}
	f.unwritten = why
}

// showAgain is how often a status is written of which only the figures or the words have changed.
const showAgain = time.Minute

// worthWriting says whether a status that was written some time ago is to be replaced.
func worthWriting(was, is v1alpha1.DemandSignalStatus, ago time.Duration) bool {
	if equality.Semantic.DeepEqual(was, is) {
		return false
	}
	if ago >= showAgain {
		return true
	}
	is.Current, is.LastReadTime = was.Current, was.LastReadTime
	is.Conditions = append([]metav1.Condition(nil), is.Conditions...)
	if len(was.Conditions) == len(is.Conditions) {
		is.Conditions[0].Message = was.Conditions[0].Message
	}
	return !equality.Semantic.DeepEqual(was, is)
}

// writeSignal stores the status of a signal that is still this very one.
func (r *Reconciler) writeSignal(ctx context.Context, d *v1alpha1.DemandSignal, status v1alpha1.DemandSignalStatus) error {
	changed := d.DeepCopy()
	changed.Status = status
	patch, err := statusPatch("DemandSignal", d, changed)
	if err != nil {
		return err
	}
	answer := &v1alpha1.DemandSignal{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	err = r.Client.Status().Patch(ctx, answer, patch, client.FieldOwner(kube.FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of DemandSignal %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}
