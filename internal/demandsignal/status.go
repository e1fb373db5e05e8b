package demandsignal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/demandsignal/control"
	"github.com/mbcas/mbcas/internal/kube"
)

// percentStatus is the status of a DemandSignal whose metric there was no time to read.
func percentStatus(d *v1alpha1.DemandSignal, percent int32) v1alpha1.DemandSignalStatus {
	s := *d.Status.DeepCopy()
	s.DemandPercent = nil
	if percent > 0 {
		s.DemandPercent = &percent
	}
	return s
}

// readStatus is its status after an attempt to read its metric.
func readStatus(d *v1alpha1.DemandSignal, percent int32, sample control.Sample, err error, now time.Time) v1alpha1.DemandSignalStatus {
	s := percentStatus(d, percent)
	s.ObservedGeneration = d.Generation
	c := metav1.Condition{
		Type: v1alpha1.SignalAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonMetricRead, Message: "the metric is read",
		ObservedGeneration: d.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	var bad *readError
	switch {
	case errors.As(err, &bad):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, bad.reason, bad.message
	case err != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonMetricsAPIUnavailable, err.Error()
	default:
		read := metav1.NewTime(now).Rfc3339Copy()
		s.LastReadTime, s.Current = &read, kube.DisplayQuantity(sample.Value)
	}
	if most := 1000; len(c.Message) > most {
		c.Message = strings.ToValidUTF8(c.Message[:most], "")
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(other metav1.Condition) bool { return other.Type != c.Type })
	meta.SetStatusCondition(&s.Conditions, c)
	return s
}

// switchOff writes into all signals that no metric is read, and says whether that is done.
func (c *Controller) switchOff(ctx context.Context) (done bool) {
	var list v1alpha1.DemandSignalList
	if err := c.Live.List(ctx, &list); err != nil {
		return kube.NotServed(err)
	}
	done = true
	off := &readError{v1alpha1.ReasonSignalsOff, "the controller reads no metric: it was started with --signal-interval=0"}
	for i := range list.Items {
		d := &list.Items[i]
		s := &signal{}
		c.storeStatus(ctx, d, s, readStatus(d, 0, control.Sample{}, off, c.Now()), c.Now())
		done = done && s.statusError == ""
	}
	return done
}

// notRead is why a metric was not read, in the words of the last time if that was the same.
func notRead(d *v1alpha1.DemandSignal) error {
	const reason = v1alpha1.ReasonMetricsAPIUnavailable
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.SignalAvailable); c != nil && c.Reason == reason {
		return &readError{reason, c.Message}
	}
	return &readError{reason, "it was not read this time, because other reads of the same API took long and gave nothing: look at the metrics adapter and its APIService"}
}

// reasonOf is the reason of a *readError; "" of anything else.
func reasonOf(err error) string {
	var bad *readError
	if errors.As(err, &bad) {
		return bad.reason
	}
	return ""
}

// announce writes a changed reason to the log and as an event.
func (c *Controller) announce(d *v1alpha1.DemandSignal, s *signal, status v1alpha1.DemandSignalStatus) {
	available := meta.FindStatusCondition(status.Conditions, v1alpha1.SignalAvailable)
	if available == nil || available.Reason == s.reason {
		return
	}
	s.reason = available.Reason
	c.Log.Info("demand signal", "namespace", d.Namespace, "signal", d.Name, "reason", available.Reason, "message", available.Message)
	kind := corev1.EventTypeWarning
	if available.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	about := d.DeepCopy()
	about.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DemandSignal"))
	c.Events.Eventf(about, nil, kind, available.Reason, "ReadMetric", "%s", available.Message)
}

// storeStatus writes the status if that is worth a write. A write that failed is tried again in the next pass.
func (c *Controller) storeStatus(ctx context.Context, d *v1alpha1.DemandSignal, s *signal, status v1alpha1.DemandSignalStatus, now time.Time) {
	if !worthWriting(d.Status, status, now.Sub(s.written)) {
		return
	}
	why := ""
	if err := c.writeStatus(ctx, d, status); err == nil {
		s.written = now
	} else if why = err.Error(); why != s.statusError && ctx.Err() == nil {
		c.Log.Error("status of a demand signal not written", "namespace", d.Namespace, "signal", d.Name, "err", err)
	}
	s.statusError = why
}

// statusInterval is how often a status is written of which only figures or messages have changed.
const statusInterval = time.Minute

// worthWriting says whether a status that was written some time ago is to be replaced.
func worthWriting(was, is v1alpha1.DemandSignalStatus, ago time.Duration) bool {
	if equality.Semantic.DeepEqual(was, is) {
		return false
	}
	if ago >= statusInterval {
		return true
	}
	is.Current, is.LastReadTime = was.Current, was.LastReadTime
	is.Conditions = append([]metav1.Condition(nil), is.Conditions...)
	if len(is.Conditions) > 0 && len(was.Conditions) == len(is.Conditions) {
		is.Conditions[0].Message = was.Conditions[0].Message
	}
	return !equality.Semantic.DeepEqual(was, is)
}

// writeStatus stores the status, unless the signal was created anew since.
func (c *Controller) writeStatus(ctx context.Context, d *v1alpha1.DemandSignal, status v1alpha1.DemandSignalStatus) error {
	was, is := &v1alpha1.DemandSignal{Status: d.Status}, &v1alpha1.DemandSignal{Status: status} // without amounts in spec, see metricOf
	patch, err := client.MergeFrom(was).Data(is)
	if err == nil {
		patch, err = kube.ForUID(patch, d.UID)
	}
	if err != nil {
		return fmt.Errorf("status of DemandSignal %s/%s: %w", d.Namespace, d.Name, err)
	}
	answer := &v1alpha1.DemandSignal{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	err = c.Client.Status().Patch(ctx, answer, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldManager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of DemandSignal %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}
