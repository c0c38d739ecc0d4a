package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// podReconciler reads each pod from the cache, and counts.
type podReconciler struct {
	client.Client
	reconciles atomic.Int64
}

func (r *podReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := r.Get(ctx, request.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.reconciles.Add(1)
	return ctrl.Result{}, nil
}

const (
	tick        = 5 * time.Millisecond
	reportEvery = time.Second
)

// reportPauses says every second how much later than asked a timer fired, at the worst.
func (r *podReconciler) reportPauses(ctx context.Context) error {
	var longest time.Duration
	for reportAt := time.Now().Add(reportEvery); ctx.Err() == nil; {
		asked := time.Now().Add(tick)
		time.Sleep(tick)
		now := time.Now()
		longest = max(longest, now.Sub(asked))
		if now.After(reportAt) {
			fmt.Printf("{\"reconciles\": %d, \"pause_ms\": %.3f}\n", r.reconciles.Load(), longest.Seconds()*1000)
			longest, reportAt = 0, now.Add(reportEvery)
		}
	}
	return nil
}

func setUpPods(mgr ctrl.Manager, workers int) error {
	reconciler := &podReconciler{Client: mgr.GetClient()}
	if err := mgr.Add(manager.RunnableFunc(reconciler.reportPauses)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&corev1.Pod{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconciler)
}
