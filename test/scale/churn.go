package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mbcas/mbcas/internal/testing/fakekubelet"
)

// churnPods replaces a share of all pods in a minute, at an even pace, each by another of the same
// workload on the same node.
func (w *world) churnPods(ctx context.Context, r *row) error {
	const workers = 8
	interval := time.Duration(float64(time.Minute) / (w.churn * float64(w.pods)))
	next := make(chan int)
	failures := make(chan error, 1)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for i := range next {
				if err := w.replace(ctx, i); err != nil {
					select {
					case failures <- err:
					default: // one is enough
					}
				}
			}
		})
	}
	start, probed := time.Now(), time.Now()
	for time.Since(start) < w.length && ctx.Err() == nil {
		next <- r.replaced % w.pods
		r.replaced++
		if time.Since(probed) > time.Second {
			w.probe()
			probed = time.Now()
		}
		if wait := time.Until(start.Add(time.Duration(r.replaced) * interval)); wait > 0 {
			sleep(ctx, wait)
		}
	}
	close(next)
	running.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return ctx.Err()
	}
}

// replace deletes a pod that was there from the start and creates its successor.
func (w *world) replace(ctx context.Context, i int) error {
	old, pod := fakekubelet.PodObject(w.specOf(i, 0)), fakekubelet.PodObject(w.specOf(i, 1))
	pods := w.core.CoreV1().Pods(old.Namespace)
	if err := pods.Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s: %w", old.Namespace, old.Name, err)
	}
	pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = "", ""
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
