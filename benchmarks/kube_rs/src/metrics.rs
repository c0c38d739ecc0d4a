//! kube-rs leaves metrics to its users; these are the ones of its own example operator.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

#[derive(Clone)]
pub struct Metrics {
    runs: Counter,
    failures: Counter,
    duration: Histogram,
}

impl Metrics {
    /// Serves all metrics at `address`.
    pub async fn serve(address: String) -> io::Result<Self> {
        let metrics = Self {
            runs: Counter::default(),
            failures: Counter::default(),
            duration: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
        };
        let mut registry = Registry::default();
        registry.register("reconcile_runs", "Reconciliations", metrics.runs.clone());
        registry.register("reconcile_failures", "Failed reconciliations", metrics.failures.clone());
        registry.register("reconcile_duration_seconds", "Duration", metrics.duration.clone());
        let listener = TcpListener::bind(address).await?;
        tokio::spawn(answer(listener, Arc::new(registry)));
        Ok(metrics)
    }

    pub fn count(&self, begun: Instant) {
        self.runs.inc();
        self.duration.observe(begun.elapsed().as_secs_f64());
    }

    pub fn count_failure(&self) {
        self.failures.inc();
    }
}

async fn answer(listener: TcpListener, registry: Arc<Registry>) {
    while let Ok((stream, _)) = listener.accept().await {
        let registry = registry.clone();
        let service = service_fn(move |_| {
            let mut text = String::new();
            let written = encode(&mut text, &registry);
            let code = if written.is_ok() { 200 } else { 500 };
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or_default();
            async move { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
