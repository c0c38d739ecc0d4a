"""Certificates and authorities follow each other on a real cluster, and nobody who is connected notices."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database_support.e2e.patroni_cluster import PatroniCluster, view
from devcluster.target import Target, wait_until
from steersman.meta import ObjectKey
from steersman_databases.engines.postgresql.ha import rest_client
from steersman_databases.engines.postgresql.ha.tls_probe import served_fingerprint
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.certificates.model import CertificateRequest, Data, build_certificate_set
from steersman_databases.features.certificates.x509 import fingerprint

IMAGE = os.environ.get("STEERSMAN_IMAGE_POSTGRESQL_17", "steersman.dev/postgresql:17")
FILES = "/tmp/client"


class KeyedCluster(PatroniCluster):
    """One with the operator's own Secrets, whose certificates are as old as a test says."""

    ring: Mapping[ObjectKey, Data] = {}

    def turn(self, now: datetime) -> None:
        """Takes the Secrets to what the operator would write at ``now``."""
        self.ring = build_certificate_set(self.declared, CertificateRequest(), self.ring, None, now).data

    def age(self, now: datetime) -> None:
        """As after 1,010 days: a successor has been trusted for half a year, and certificates are to be renewed."""
        for days in (1010, 185, 184):
            self.turn(now - timedelta(days=days))
        self.ring = {self.declared.names.ca_secret: self.ring[self.declared.names.ca_secret]}
        self.turn(now - timedelta(days=62))

    def write(self) -> None:
        """Writes them."""
        self._apply(self._secrets())

    def _secrets(self) -> list[dict[str, Any]]:
        names = self.declared.names
        return [
            self._object(
                "v1",
                "Secret",
                key.name,
                type="kubernetes.io/tls",
                data={name: base64.b64encode(content).decode() for name, content in self.ring[key].items()},
            )
            for key in (names.server_certificate, names.peer_certificate)
        ]

    def pods(self) -> list[str]:
        return [self.declared.names.pod(number).name for number in range(self.declared.instances)]

    @contextmanager
    def forwarded(self, pod: str, port: int) -> Generator[ServerEndpoint]:
        """A way to a pod's port: a machine has no route to the pods of its cluster."""
        command = [*self.command, "port-forward", f"pod/{pod}", f":{port}"]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            assert process.stdout is not None
            told = process.stdout.readline()
            try:
                yield ServerEndpoint("127.0.0.1", int(told.split("127.0.0.1:")[1].split()[0]))
            finally:
                process.kill()

    @property
    def command(self) -> list[str]:
        """kubectl, for what has no end of its own."""
        config = [] if self.target.kubeconfig is None else [f"--kubeconfig={self.target.kubeconfig}"]
        return [self.target.kubectl_path, *config, f"--namespace={self.namespace}"]

    def reload(self, pod: str) -> None:
        """Asks as the operator does."""
        names = self.declared.names
        context = rest_client.client_ssl_context(
            self.ring[names.operator_certificate], self.ring[names.server_certificate]
        )
        with self.forwarded(pod, 8008) as endpoint:
            asyncio.run(rest_client.post(endpoint, "/reload", {}, context))

    def shown(self, pod: str) -> str | None:
        with self.forwarded(pod, 5432) as endpoint:
            return asyncio.run(served_fingerprint(endpoint))


class Client:
    """A pod beside the cluster, with psql and files of its own."""

    def __init__(self, cluster: KeyedCluster) -> None:
        self._cluster = cluster
        self._host = f"{cluster.declared.names.service('rw').name}.{cluster.namespace}.svc"
        spec = {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "client", "image": IMAGE, "command": ["sleep", "3600"]}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec}
        cluster.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(pod))
        cluster.kubectl("wait", "pod/client", "--for=condition=Ready", "--timeout=60s", seconds=70)

    def write(self, name: str, content: bytes) -> None:
        script = f"umask 077; mkdir -p {FILES}; cat > {FILES}/{name}"
        self._cluster.kubectl("exec", "-i", "client", "--", "sh", "-c", script, stdin=content.decode())

    def login(self, bundle: str) -> str:
        """How the operator's account logs in, as somebody whose authorities are those of the file ``bundle``."""
        files = f"sslcert={FILES}/tls.crt sslkey={FILES}/tls.key sslrootcert={FILES}/{bundle}"
        return f"host={self._host} dbname=postgres user=steersman_operator sslmode=verify-full {files}"

    def asks(self, bundle: str, query: str = "SELECT 1") -> str:
        """The answer of a session of its own, or what was said against it."""
        command = ("exec", "client", "--", "psql", "-XAtq", self.login(bundle), "-c", query)
        done = self._cluster.target.try_kubectl(f"--namespace={self._cluster.namespace}", *command, seconds=20)
        return done.stdout.strip() or done.stderr.strip()

    @contextmanager
    def session(self, bundle: str) -> Generator[subprocess.Popen[str]]:
        """One that stays open."""
        command = [*self._cluster.command, "exec", "-i", "client", "--"]
        with subprocess.Popen(
            [*command, "psql", "-XAtq", self.login(bundle)],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            yield process
            process.kill()


def ask(session: subprocess.Popen[str], query: str) -> str:
    """One line of an open session's answer."""
    assert session.stdin is not None and session.stdout is not None
    session.stdin.write(f"{query};\n")
    session.stdin.flush()
    return session.stdout.readline().strip()


@pytest.fixture
def cluster(bare_cluster: Target, namespace: str) -> KeyedCluster:
    """Three members that stream."""
    made = KeyedCluster(bare_cluster, view("keys", namespace, IMAGE))
    made.age(datetime.now(UTC))
    made.apply()
    made.start_all(240)
    return made


def bring(cluster: KeyedCluster, check: Callable[[], str]) -> None:
    """Has every member show what the Secret says, as the operator does, with ``check`` answering 1 all the time."""
    wanted = fingerprint(cluster.ring[cluster.declared.names.server_certificate]["tls.crt"].decode())

    def shown() -> bool:
        assert check() == "1"
        for pod in cluster.pods():
            cluster.reload(pod)
        return all(cluster.shown(pod) == wanted for pod in cluster.pods())

    wait_until("every member shows the new certificate", shown, seconds=200, interval=2)


SENDERS = "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_replication"


def test_ca_rotation_keeps_sessions_and_new_ones_verify(cluster: KeyedCluster) -> None:
    names, former = cluster.declared.names, cluster.ring
    client, leader = Client(cluster), cluster.leader() or ""
    login, server = former[names.operator_certificate], former[names.server_certificate]
    for name, content in (("tls.crt", login["tls.crt"]), ("tls.key", login["tls.key"]), ("ca.crt", server["ca.crt"])):
        client.write(name, content)
    with client.session("ca.crt") as session:
        began = ask(session, "SELECT pg_backend_pid()")
        assert began.isdecimal(), began
        senders = cluster.sql(leader, SENDERS)

        cluster.turn(datetime.now(UTC))
        for key, what in ((names.ca_secret, "server.crt"), (names.server_certificate, "tls.crt")):
            assert cluster.ring[key][what] != former[key][what]
        cluster.write()
        # Who learned of the successor within half a year verifies at each moment, whoever answers.
        bring(cluster, lambda: client.asks("ca.crt"))

        assert ask(session, "SELECT pg_backend_pid()") == began
        assert cluster.settled() and cluster.sql(leader, SENDERS) == senders
    # Patroni and the replicas go by the new ones too.
    cluster.switch_over()
    wait_until("another leads, and all stream", lambda: cluster.leader() != leader and cluster.settled(), seconds=90)
    assert client.asks("ca.crt", "SELECT pg_is_in_recovery()") == "f"
    # And the new login is taken by servers that know the next authority for clients.
    client.write("tls.crt", cluster.ring[names.operator_certificate]["tls.crt"])
    client.write("tls.key", cluster.ring[names.operator_certificate]["tls.key"])
    assert client.asks("ca.crt") == "1"
