"""A real Prometheus that scrapes the instances of a cluster under test."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from database_support.e2e.cluster import ClusterUnderTest
from steersman_databases.features.monitoring.alerts import ALERTS, rule_groups

_HOLD_SECONDS = 5
"""The time that each alert waits, in place of its minutes."""


class Prometheus:
    """A server on this machine that scrapes each instance every two seconds."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def value(self, expression: str) -> float | None:
        """Return the largest value of an expression, None without a series."""
        found = [float(one["value"][1]) for one in self.get("query", query=expression)["result"]]
        return max(found, default=None)

    def firing(self) -> set[str]:
        """Return the names of the alerts that are firing."""
        return {one["labels"]["alertname"] for one in self.get("alerts")["alerts"] if one["state"] == "firing"}


@contextmanager
def prometheus(cluster: ClusterUnderTest, directory: Path) -> Generator[Prometheus]:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is missing: on Debian, apt-get install prometheus")
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": rules()}))
    with ExitStack() as forwards:
        ports = {
            pod["metadata"]["name"]: forwards.enter_context(forwarded(cluster, pod["metadata"]["name"]))
            for pod in cluster.namespace_client.all("pods", cluster.selector)
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration(cluster, directory, ports)))
        yield from served(program, directory)


@contextmanager
def forwarded(cluster: ClusterUnderTest, pod: str) -> Generator[int]:
    """A port of this machine that leads to the exporter of a pod."""
    place = cluster.namespace_client
    target = place.target
    chosen = [] if target.kubeconfig is None else [f"--kubeconfig={target.kubeconfig}"]
    command = [target.kubectl_path, *chosen, "--namespace", place.namespace, "port-forward", f"pod/{pod}", ":9187"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.search(r"127\.0\.0\.1:(\d+)", first)
            assert found is not None, first
            yield int(found[1])
        finally:
            process.kill()


def served(program: str, directory: Path) -> Generator[Prometheus]:
    """Run Prometheus with the files of a directory."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with (directory / "output.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={directory}/prometheus.yaml",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(port)
    finally:
        process.kill()
        process.wait()


def rules() -> list[Any]:
    # Those of the operator need its metrics, which this server does not scrape.
    groups = json.loads(json.dumps(rule_groups(tuple(a for a in ALERTS if a.group != "clusters"))))
    for group in groups:
        for rule in group["rules"]:
            rule["for"] = f"{_HOLD_SECONDS}s"
    return groups


def configuration(cluster: ClusterUnderTest, directory: Path, ports: Mapping[str, int]) -> dict[str, Any]:
    """Scrape the pods by forwarded ports, with the name of the certificate as in the PodMonitor."""
    place = cluster.namespace_client
    (directory / "ca.crt").write_text(place.secret(f"{cluster.name}-tls")["ca.crt"])
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {"namespace": place.namespace, "dbcluster": cluster.name, "pod": pod},
        }
        for pod, port in ports.items()
    ]
    return {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
        "rule_files": [f"{directory}/rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "databases",
                "scheme": "https",
                "honor_labels": True,
                "tls_config": {
                    "ca_file": f"{directory}/ca.crt",
                    "server_name": f"{cluster.name}-rw.{place.namespace}.svc",
                },
                "static_configs": targets,
            }
        ],
    }


def wait_until_scraped(cluster: ClusterUnderTest, server: Prometheus, engine: str) -> None:
    """Wait until all instances are targets whose server responds."""
    expected = cluster.spec["instances"]

    def scraped() -> bool | None:
        try:
            return server.value(f"sum(steersman_{engine}_up)") == expected or None
        except OSError:
            return None

    cluster.until("scraped", scraped)
    assert server.value("count(up == 1)") == expected
