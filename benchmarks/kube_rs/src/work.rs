//! One ConfigMap per Work, and a status that says so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{self, ObjectRef, Store, store::WriterDropped};
use kube::runtime::{PredicateConfig, WatchStreamExt, predicates, watcher};
use kube::{Api, Client, CustomResource, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::metrics::Metrics;

#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "benchmarks.steersman.dev",
    version = "v1",
    kind = "Work",
    plural = "works",
    namespaced,
    status = "WorkStatus",
    schema = "disabled"
)]
pub struct WorkSpec {
    text: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    observed_generation: Option<i64>,
    config_map: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    #[error("the cache of ConfigMaps ended: {0}")]
    Cache(#[from] WriterDropped),
}

pub struct Options {
    pub workers: u16,
    pub with_events: bool,
    /// Whether the status says when the reconcile began.
    pub timed: bool,
}

struct Context {
    client: Client,
    config_maps: Store<ConfigMap>,
    recorder: Option<Recorder>,
    timed: bool,
    metrics: Metrics,
}

async fn reconcile(work: Arc<Work>, context: Arc<Context>) -> Result<Action, Error> {
    let begun = Instant::now();
    let result = reconcile_one(&work, &context).await;
    context.metrics.count(begun);
    result
}

async fn reconcile_one(work: &Work, context: &Context) -> Result<Action, Error> {
    let started_at = context.timed.then(now);
    context.config_maps.wait_until_ready().await?;
    let (name, namespace) = (work.name_any(), work.namespace().unwrap_or_default());
    let as_manager = PatchParams::apply("benchmark").force();

    let data = BTreeMap::from([("text".to_owned(), work.spec.text.clone())]);
    let present = context.config_maps.get(&ObjectRef::new(&name).within(&namespace));
    if present.is_none_or(|present| present.data.as_ref() != Some(&data)) {
        let config_map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: work.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        let api = Api::<ConfigMap>::namespaced(context.client.clone(), &namespace);
        api.patch(&name, &as_manager, &Patch::Apply(&config_map)).await?;
    }

    let status = work.status.clone().unwrap_or_default();
    if status.observed_generation == work.metadata.generation && status.config_map.as_ref() == Some(&name) {
        return Ok(Action::await_change());
    }
    let status = WorkStatus {
        observed_generation: work.metadata.generation,
        config_map: Some(name.clone()),
        started_at,
    };
    let applied = json!({ "apiVersion": Work::api_version(&()), "kind": Work::kind(&()), "status": status });
    let api = Api::<Work>::namespaced(context.client.clone(), &namespace);
    api.patch_status(&name, &as_manager, &Patch::Apply(&applied)).await?;
    if let Some(recorder) = &context.recorder {
        recorder.publish(&done(), &work.object_ref(&())).await?;
    }
    Ok(Action::await_change())
}

/// Nanoseconds since 1970.
fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos() as i64
}

fn done() -> Event {
    Event {
        type_: EventType::Normal,
        reason: "Done".into(),
        note: Some("the ConfigMap is there".into()),
        action: "Reconcile".into(),
        secondary: None,
    }
}

fn retry(_: Arc<Work>, _: &Error, context: Arc<Context>) -> Action {
    context.metrics.count_failure();
    Action::requeue(Duration::from_secs(1))
}

pub async fn run(client: Client, namespace: &str, options: Options, metrics: Metrics) {
    let (works, works_writer) = reflector::store();
    let work_changes = watcher(
        Api::<Work>::namespaced(client.clone(), namespace),
        watcher::Config::default(),
    )
    .default_backoff()
    .modify(|work| work.managed_fields_mut().clear())
    .reflect(works_writer)
    .applied_objects()
    .predicate_filter(predicates::generation, PredicateConfig::default());
    let (config_maps, config_maps_writer) = reflector::store();
    let owned_changes = watcher(
        Api::<ConfigMap>::namespaced(client.clone(), namespace),
        watcher::Config::default(),
    )
    .default_backoff()
    .modify(|config_map| config_map.managed_fields_mut().clear())
    .reflect(config_maps_writer)
    .touched_objects();
    let reporter = Reporter {
        controller: "benchmark".into(),
        instance: None,
    };
    let recorder = options.with_events.then(|| Recorder::new(client.clone(), reporter));
    Controller::for_stream(work_changes, works)
        .owns_stream(owned_changes)
        .with_config(Config::default().concurrency(options.workers))
        .shutdown_on_signal()
        .run(
            reconcile,
            retry,
            Arc::new(Context {
                client,
                config_maps,
                recorder,
                timed: options.timed,
                metrics,
            }),
        )
        .for_each(|result| async {
            if let Err(error) = result {
                eprintln!("{error}");
            }
        })
        .await;
}
