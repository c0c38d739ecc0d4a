//! Every pod is held in the cache, read at each of its changes, and counted.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};

use crate::metrics::Metrics;

const TICK: Duration = Duration::from_millis(5);
const REPORT_EVERY: Duration = Duration::from_secs(1);

struct Context {
    reconciles: AtomicU64,
    metrics: Metrics,
}

async fn reconcile(_: Arc<Pod>, context: Arc<Context>) -> Result<Action, Infallible> {
    let begun = Instant::now();
    context.reconciles.fetch_add(1, Ordering::Relaxed);
    context.metrics.count(begun);
    Ok(Action::await_change())
}

/// Says every second how much later than asked a timer fired, at the worst.
async fn report_pauses(context: Arc<Context>) {
    let mut longest = Duration::ZERO;
    let mut report_at = Instant::now() + REPORT_EVERY;
    loop {
        let asked = Instant::now() + TICK;
        tokio::time::sleep(TICK).await;
        longest = longest.max(asked.elapsed());
        if Instant::now() >= report_at {
            let reconciles = context.reconciles.load(Ordering::Relaxed);
            println!(
                "{{\"reconciles\": {reconciles}, \"pause_ms\": {:.3}}}",
                longest.as_secs_f64() * 1000.0
            );
            longest = Duration::ZERO;
            report_at = Instant::now() + REPORT_EVERY;
        }
    }
}

pub async fn run(client: Client, namespace: &str, workers: u16, metrics: Metrics) {
    let context = Arc::new(Context {
        reconciles: AtomicU64::new(0),
        metrics,
    });
    tokio::spawn(report_pauses(context.clone()));
    let (pods, writer) = reflector::store();
    let changes = watcher(Api::<Pod>::namespaced(client, namespace), watcher::Config::default())
        .default_backoff()
        .modify(|pod| pod.managed_fields_mut().clear())
        .reflect(writer)
        .applied_objects();
    Controller::for_stream(changes, pods)
        .with_config(Config::default().concurrency(workers))
        .shutdown_on_signal()
        .run(reconcile, |_, _, _| Action::requeue(REPORT_EVERY), context)
        .for_each(|_| async {})
        .await;
}
