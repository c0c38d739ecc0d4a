"""``python -m benchmarks.exporter``: latency and cost of scrapes.

The server is PostgreSQL with 1,000 tables under load.

Run it with ``PYTHONPATH=operators/databases/tests/support:operators/databases/images/common``.
"""

from __future__ import annotations

import http.client
import os
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from database_support.servers.postgresql import RealPostgreSQLServer, start_postgresql
from database_support.servers.process import certify
from database_support.servers.real_server import ADMINISTRATOR
from steersman_instance.metrics.exporter import postgresql_exporter
from steersman_instance.metrics.history.recorder import History
from steersman_instance.metrics.postgresql.session import ServerAddress
from steersman_instance.metrics.server import MetricsServer
from steersman_instance.paths import InstancePaths

TABLES = 1000
SCRAPES = 300
INTERVAL_SECONDS = 0.2
WARM_UP_SECONDS = 10.0


def main() -> None:
    """Measure and print the results."""
    start = contextmanager(start_postgresql)
    with start() as server, TemporaryDirectory() as name:
        prepare(server)
        with load(server):
            measured = measure(server, Path(name))
    for metric, value in measured.items():
        print(f"{metric:32} {value}")


def prepare(server: RealPostgreSQLServer) -> None:
    server.run("CREATE ROLE steersman_monitor NOLOGIN; GRANT pg_monitor TO steersman_monitor")
    server.run(
        f"DO $$ BEGIN FOR n IN 1..{TABLES} LOOP EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY)', n);"
        " END LOOP; END $$"
    )


@contextmanager
def load(server: RealPostgreSQLServer) -> Generator[None]:
    """Run pgbench with its own script, four clients."""
    environment = {**os.environ, "PGPASSWORD": ADMINISTRATOR.password}
    address = ["-h", server.endpoint.host, "-p", str(server.endpoint.port), "-U", ADMINISTRATOR.username, "postgres"]
    pgbench = str(server.programs / "pgbench")
    subprocess.run([pgbench, "-i", "-q", *address], env=environment, check=True, capture_output=True)
    process = subprocess.Popen(
        [pgbench, "-c", "4", "-T", "3600", *address],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(server: RealPostgreSQLServer, directory: Path) -> dict[str, float]:
    """Scrape the exporter, which runs in this process, and return the figures."""
    certify(directory)
    (directory / "cert.pem").replace(directory / "tls.crt")
    (directory / "key.pem").replace(directory / "tls.key")
    address = ServerAddress(
        server.endpoint.host,
        ADMINISTRATOR.username,
        {"port": str(server.endpoint.port), "password": ADMINISTRATOR.password},
    )
    [(version,)] = server.administer("SELECT current_setting('server_version_num')::int")
    paths = InstancePaths(volume=directory, run=directory, tls=directory, peer=directory)
    exporter = postgresql_exporter(version, paths, address)
    snapshot, stop = exporter.snapshot({"dbcluster": "orders"}), threading.Event()
    exporter.start(snapshot, stop)
    history = History(exporter.series, snapshot.readings)
    threading.Thread(target=history.run, args=(stop,), daemon=True).start()
    page = MetricsServer(snapshot, history, directory, "127.0.0.1", 0)
    page.start()
    time.sleep(WARM_UP_SECONDS)
    before, start = time.process_time(), time.monotonic()
    idle = 30.0
    time.sleep(idle)
    collecting = (time.process_time() - before) / (time.monotonic() - start)
    latencies, size, series, cpu = list[float](), 0, 0, time.process_time()
    for _ in range(SCRAPES):
        begin = time.perf_counter()
        text = scrape(page.port)
        latencies.append(time.perf_counter() - begin)
        size, series = len(text), sum(1 for line in text.splitlines() if not line.startswith(b"#"))
        time.sleep(INTERVAL_SECONDS)
    # With that of the client, which is in this process too.
    cpu = (time.process_time() - cpu) / SCRAPES
    stop.set()
    page.stop()
    return {
        "tables": TABLES,
        "series": series,
        "bytes": size,
        "scrape_median_ms": round(statistics.median(latencies) * 1000, 1),
        "scrape_cpu_ms": round(cpu * 1000, 1),
        "scrape_p99_ms": round(statistics.quantiles(latencies, n=100)[98] * 1000, 1),
        "collectors_core_percent": round(collecting * 100, 2),
    }


def scrape(port: int) -> bytes:
    """Scrape once with a new connection, as after a restart of Prometheus. The certificate is not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
