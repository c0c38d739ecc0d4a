// The operator under test, as its users write one: controller-runtime with client-go.
//
// What it does is told in the environment, to every peer alike; see benchmarks/peers.py.
package main

import (
	"context"
	"os"
	"strconv"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"steersman.dev/benchmarks/controller_runtime/api"
)

func main() {
	ctrl.SetLogger(zap.New(zap.Level(zapcore.WarnLevel)))
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		log.Log.Error(err, "the operator failed")
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	workers, err := strconv.Atoi(os.Getenv("BENCHMARK_WORKERS"))
	if err != nil {
		return err
	}
	manager, err := newManager(os.Getenv("BENCHMARK_NAMESPACE"))
	if err != nil {
		return err
	}
	if os.Getenv("BENCHMARK_OPERATOR") == "pods" {
		err = setUpPods(manager, workers)
	} else {
		err = setUpWork(manager, workers)
	}
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

func newManager(namespace string) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := api.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // no limit on the client's side: the API server has its own
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: os.Getenv("BENCHMARK_METRICS")},
		LeaderElection:          os.Getenv("BENCHMARK_LEADER_ELECTION") == "yes",
		LeaderElectionID:        "benchmark",
		LeaderElectionNamespace: namespace,
		// So that a restarted operator need not wait for the lease of its predecessor to expire.
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(),
		},
	})
}
