//! The operator under test, as its users write one: kube-rs.
//!
//! What it does is told in the environment, to every peer alike; see `benchmarks/peers.py`.

mod metrics;
mod pods;
mod work;

use std::env;
use std::error::Error;

use kube::Client;

use metrics::Metrics;

fn setting(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    let namespace = setting("BENCHMARK_NAMESPACE");
    let workers: u16 = setting("BENCHMARK_WORKERS").parse()?;
    let metrics = Metrics::serve(setting("BENCHMARK_METRICS")).await?;
    if setting("BENCHMARK_OPERATOR") == "pods" {
        pods::run(client, &namespace, workers, metrics).await;
    } else {
        let with_events = setting("BENCHMARK_EVENTS") == "yes";
        let timed = setting("BENCHMARK_TIMED") == "yes";
        work::run(
            client,
            &namespace,
            work::Options {
                workers,
                with_events,
                timed,
            },
            metrics,
        )
        .await;
    }
    Ok(())
}
