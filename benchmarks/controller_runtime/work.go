package main

import (
	"context"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"steersman.dev/benchmarks/controller_runtime/api"
)

// workReconciler keeps one ConfigMap per Work, and says so in its status.
type workReconciler struct {
	client.Client
	recorder events.EventRecorder // nil: no Events
	timed    bool                 // the status says when the reconcile began
}

func (r *workReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	started := time.Now()
	var work api.Work
	if err := r.Get(ctx, request.NamespacedName, &work); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: work.Name, Namespace: work.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, configMap, func() error {
		configMap.Data = map[string]string{"text": work.Spec.Text}
		return controllerutil.SetControllerReference(&work, configMap, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if work.Status.ObservedGeneration == work.Generation && work.Status.ConfigMap == work.Name {
		return ctrl.Result{}, nil
	}
	work.Status = api.WorkStatus{ObservedGeneration: work.Generation, ConfigMap: work.Name}
	if r.timed {
		work.Status.StartedAt = started.UnixNano()
	}
	if err := r.Status().Update(ctx, &work); err != nil {
		return ctrl.Result{}, err
	}
	if r.recorder != nil {
		r.recorder.Eventf(&work, configMap, corev1.EventTypeNormal, "Done", "Reconcile", "the ConfigMap is there")
	}
	return ctrl.Result{}, nil
}

func setUpWork(manager ctrl.Manager, workers int) error {
	reconciler := &workReconciler{Client: manager.GetClient(), timed: os.Getenv("BENCHMARK_TIMED") == "yes"}
	if os.Getenv("BENCHMARK_EVENTS") == "yes" {
		reconciler.recorder = manager.GetEventRecorder("benchmark")
	}
	return ctrl.NewControllerManagedBy(manager).
		For(&api.Work{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconciler)
}
