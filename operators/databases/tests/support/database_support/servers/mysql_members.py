"""A MySQL cluster as its pods alone make it: real agents, real servers on loopback, a real API server, no operator.

The pods are objects that nobody runs; each has a process in its stead, which may be ended and started as a kubelet
would, and its volume is a directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pymysql
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from database_support.servers.process import UNPRIVILEGED_UID, environment, free_port, program
from framework_support.certificates import CertificateAuthority
from steersman.api.apply import core, discovery, meta
from steersman.api.core_v1 import ConfigMap, Pod
from steersman.api.discovery_v1 import EndpointSlice
from steersman.client import MergePatch
from steersman.client.sync import SyncClient
from steersman.errors import NotFound
from steersman.meta import ObjectKey
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine
from steersman_databases.engines.mysql.sql.system_accounts import statements
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.features.access import rbac
from steersman_testing.envtest import Envtest

T = TypeVar("T")

PREFIX = "databases.steersman.dev"
CLUSTER = "orders"
GROUP_NAME = "7b1f4a52-5a3e-4d0e-9f4c-0f1f3f1c7a11"
TESTER = "tester"
ACCOUNTS = "".join(
    f"{statement};\n"
    for statement in (
        *statements(),
        # Nobody's but the tests'.
        f"CREATE USER IF NOT EXISTS {TESTER}@'%' IDENTIFIED BY '{TESTER}'",
        f"GRANT ALL ON *.* TO {TESTER}@'%' WITH GRANT OPTION",
    )
)
TIME_ZONES = """
TRUNCATE TABLE time_zone;
START TRANSACTION;
INSERT INTO time_zone (Use_leap_seconds) VALUES ('N');
SET @time_zone_id= LAST_INSERT_ID();
INSERT INTO time_zone_name (Name, Time_zone_id) VALUES ('Africa/Lagos', @time_zone_id);
INSERT INTO time_zone_transition_type (Time_zone_id, Transition_type_id, Offset, Is_DST, Abbreviation) VALUES
 (@time_zone_id, 0, 3600, 0, 'WAT')
;
COMMIT;
"""
"""One zone, as mysql_tzinfo_to_sql writes it."""
_TIMEOUT_SECONDS = 150.0  # seconds: the machine may have thirty other things to do


def until(what: str, condition: Callable[[], T | None], seconds: float = _TIMEOUT_SECONDS) -> T:
    """Waits until it holds, and gives what it gave."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return found


@dataclass
class MemberProcess:
    """An instance: its pod, its volume, and the process of its container while there is one."""

    group: MemberProcesses
    number: int
    directory: Path
    port: int = field(default_factory=free_port)
    container: subprocess.Popen[bytes] | None = None

    @property
    def pod(self) -> ObjectKey:
        return ObjectKey(self.group.namespace, f"{CLUSTER}-{self.number}-0")

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def make_pod(self) -> None:
        """As a StatefulSet does."""
        labels = {f"{PREFIX}/cluster": CLUSTER, f"{PREFIX}/instance": str(self.number)}
        metadata = meta.ObjectMeta(name=self.pod.name, namespace=self.pod.namespace, labels=labels)
        spec = core.PodSpec(containers=[core.Container(name="mysql", image="none")])
        self.group.client.apply(core.Pod(metadata=metadata, spec=spec))

    def delete_pod(self) -> None:
        """Force; its container is gone too. A new one has said nothing yet."""
        self.kill()
        self.group.client.delete(Pod, self.pod, grace_period_seconds=0)

    def start(self) -> None:
        """The container: its files are new, its volume is not."""
        shutil.rmtree(self.directory / "run", ignore_errors=True)
        (self.directory / "run").mkdir()
        _chown(self.directory / "run")
        pod = self.group.client.get(Pod, self.pod)
        given = {
            "directory": str(self.directory),
            "account": str(self.group.account),
            "program": self.group.program,
            "port": self.port,
        }
        of_pod = {
            "POD_NAME": pod.metadata.name,
            "POD_NAMESPACE": pod.metadata.namespace,
            "POD_UID": pod.metadata.uid,
            "POD_IPS": f"10.0.0.{self.number + 1}",
            "NODE_NAME": f"node-{self.number}",
            "CLUSTER_NAME": CLUSTER,
            "INSTANCE": str(self.number),
        }
        script = Path(__file__).with_name("mysql_agent_process.py")
        with (self.directory / "log").open("ab") as log:
            self.container = subprocess.Popen(
                [sys.executable, str(script), json.dumps(given)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={
                    **environment(self.directory),
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    **self.group.environment,
                    **of_pod,
                },
            )

    def signal(self, how: signal.Signals) -> None:
        """To the agent."""
        assert self.container is not None
        self.container.send_signal(how)

    def kill(self) -> None:
        """Agent and server at once."""
        if self.container is not None:
            self.container.kill()
            self.container.wait()
            # The kernel ends the server with its parent; it has the lock of the volume until then.
            until("the server is gone", lambda: not self.server_runs())
            self.container = None

    def end(self, seconds: float = _TIMEOUT_SECONDS) -> int:
        """As a kubelet does it; the exit code."""
        self.signal(signal.SIGTERM)
        assert self.container is not None
        code = self.container.wait(seconds)
        self.container = None
        return code

    def server_runs(self) -> bool:
        found = self.server_pid()
        return found is not None and Path(f"/proc/{found}").exists()

    def server_pid(self) -> int | None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.directory / "run/mysqld.pid").read_text())
        return None

    def kill_server(self) -> None:
        """The server alone."""
        pid = self.server_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def freeze(self, *, thaw: bool = False) -> None:
        """Agent and server: to others it is as if they could not be reached."""
        pid, how = self.server_pid(), signal.SIGCONT if thaw else signal.SIGSTOP
        assert pid is not None
        self.signal(how)
        os.kill(pid, how)

    def lose_volume(self) -> None:
        """What the operator does to rebuild it."""
        self.kill()
        shutil.rmtree(self.directory / "volume")
        (self.directory / "volume").mkdir()
        _chown(self.directory / "volume")

    def mount_certificate(self, authority: CertificateAuthority) -> None:
        """Has a server certificate of this authority mounted."""
        _show(self.directory, authority)

    def published_status(self) -> Mapping[str, Any]:
        """What stands at its pod."""
        annotations = self.group.client.get(Pod, self.pod).metadata.annotations
        return json.loads(annotations.get(f"{PREFIX}/member-status", "{}"))

    def role(self) -> str:
        return self.group.client.get(Pod, self.pod).metadata.labels.get(f"{PREFIX}/role", "")

    def sql(self, *statements: str) -> Sequence[Sequence[Any]]:
        """As a client; the rows of the last one."""
        with self.session() as ask:
            return [ask(statement) for statement in statements][-1]

    @contextlib.contextmanager
    def session(
        self, user: str = TESTER, read_seconds: float = 20
    ) -> Generator[Callable[[str], Sequence[Sequence[Any]]]]:
        """A client that stays for a while, and gets the rows of each statement. Its password is its name."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            password=user,
            ssl=trust,
            autocommit=True,
            connect_timeout=5,
            read_timeout=read_seconds,
        )

        def ask(statement: str) -> Sequence[Sequence[Any]]:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()

        with contextlib.closing(connection):
            yield ask

    def served_certificate(self) -> bytes:
        """The certificate of its server, in DER."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        connection: Any = pymysql.connect(
            host="127.0.0.1", port=self.port, user=TESTER, password=TESTER, ssl=trust, connect_timeout=5
        )
        with contextlib.closing(connection):
            return connection._sock.getpeercert(binary_form=True)

    def trusts(self, authority: CertificateAuthority) -> bool:
        """Whether it shows a certificate of this authority."""
        shown = x509.load_der_x509_certificate(self.served_certificate())
        try:
            shown.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
        except InvalidSignature:
            return False
        return True

    def log_in_as(self, user: str, certificate: Path) -> None:
        """With the certificate in a directory. Raises MySQLError."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        trust.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, password="", ssl=trust, connect_timeout=5
        ).close()


@dataclass
class MemberProcesses:
    """All instances of one cluster, with what the operator would have made."""

    client: SyncClient
    namespace: str
    account: Path
    environment: Mapping[str, str]
    program: Sequence[str]
    clients: CertificateAuthority = field(default_factory=CertificateAuthority)
    all: list[MemberProcess] = field(default_factory=list[MemberProcess])

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, f"{CLUSTER}-group")

    def annotations(self) -> Mapping[str, str]:
        return self.client.get(ConfigMap, self.key).metadata.annotations

    def annotate(self, **said: str | None) -> None:
        """As the operator does; names without their prefix, and `_` for `-`."""
        annotations = {f"{PREFIX}/{name.replace('_', '-')}": value for name, value in said.items()}
        self.client.patch(ConfigMap, self.key, MergePatch({"metadata": {"annotations": annotations}}))

    def recreate_group_config(self, group_name: str = GROUP_NAME) -> None:
        """As the operator does where somebody has deleted it."""
        with contextlib.suppress(NotFound):
            self.client.delete(ConfigMap, self.key)
        self.client.apply(core.ConfigMap(metadata=meta.ObjectMeta(name=self.key.name, namespace=self.key.namespace)))
        self.annotate(group_name=group_name, instances=",".join(str(one.number) for one in self.all))

    def name(self) -> str:
        """The group's."""
        return self.annotations()[f"{PREFIX}/group-name"]

    def recorded_state(self) -> Mapping[str, Any]:
        """What members wrote there."""
        return json.loads(self.annotations().get(f"{PREFIX}/group-state", "{}"))

    def epoch(self) -> int:
        return self.recorded_state().get("epoch", 0)

    def endpoint(self) -> str | None:
        """The pod that -rw leads to."""
        found = self.client.get(EndpointSlice, ObjectKey(self.namespace, f"{CLUSTER}-rw-ipv4")).endpoints
        return found[0].target_ref.name if found and found[0].target_ref is not None else None

    def primary(self) -> MemberProcess | None:
        """Who everybody finds: by its label, over -rw, and in the store."""
        told = [
            one for one in self.all if one.role() == "primary" and one.published_status().get("state") == "Online"
        ]
        if len(told) != 1 or self.endpoint() != told[0].pod.name:
            return None
        leader = json.loads(self.annotations().get(f"{PREFIX}/group-state", "{}")).get("leader")
        return told[0] if leader == told[0].number else None

    def wait_settled(self) -> MemberProcess | None:
        """The primary, once all are online."""
        primary = self.primary()
        return primary if primary and all(one.published_status()["state"] == "Online" for one in self.all) else None

    def another(self, than: MemberProcess) -> MemberProcess | None:
        """Another primary."""
        primary = self.primary()
        return primary if primary is not None and primary is not than else None

    def logs(self) -> str:
        return "\n".join(f"--- {one.number}\n{one.log[-6000:]}" for one in self.all)


@contextlib.contextmanager
def members(envtest: Envtest, root: Path, directory: Path, count: int = 3) -> Generator[MemberProcesses]:
    """Pods that have not been started yet. `root` has MySQL."""
    with envtest.namespace("mysql") as namespace, SyncClient(envtest.config) as client:
        address = urlsplit(envtest.config.server)
        host = {"KUBERNETES_SERVICE_HOST": address.hostname or "", "KUBERNETES_SERVICE_PORT": str(address.port)}
        mysqld = ["setpriv", "--pdeathsig=KILL", str(cached_initialisation(root, directory))]
        account = directory / "account"
        group = MemberProcesses(client, namespace, account, host, mysqld)
        _make_objects(group, count)
        assert isinstance(envtest.config.ca, bytes)
        account.mkdir()
        (account / "ca.crt").write_bytes(envtest.config.ca)
        given = client.run(client.client.create_token(ObjectKey(namespace, CLUSTER), expiration_seconds=3600))
        (account / "token").write_text(given.status.token)
        _chown(account)
        servers = CertificateAuthority()
        for number in range(count):
            member = MemberProcess(group, number, directory / str(number))
            mount_files(member.directory, root, servers, group.clients)
            member.make_pod()
            group.all.append(member)
        try:
            yield group
        finally:
            for member in group.all:
                member.kill()


def cached_initialisation(root: Path, directory: Path) -> Path:
    """MySQL, which makes new data by its own hands once and copies them then: it takes a minute on a busy machine."""
    made = directory / "made"
    script = directory / "mysqld"
    script.write_text(f"""#!/bin/sh
case "$*" in *--initialize-insecure*) ;; *) exec {program("mysqld", str(root / "usr/sbin"))} "$@" ;; esac
for argument; do case $argument in --datadir=*) data=${{argument#*=}} ;; esac; done
if [ -d {made} ]; then
    exec cp -R {made} "$data"
fi
{program("mysqld", str(root / "usr/sbin"))} "$@" || exit
cp -R "$data" {made}.new
# Each server gives itself a name of its own.
rm -f {made}.new/auto.cnf
mv -T {made}.new {made}
""")
    script.chmod(0o755)
    _chown(directory)
    return script


def _make_objects(group: MemberProcesses, count: int) -> None:
    """What the operator makes, with the rights that it gives and no more."""
    client, namespace = group.client, group.namespace

    def metadata(name: str, **labels: str) -> meta.ObjectMeta:
        return meta.ObjectMeta(name=name, namespace=namespace, labels=labels)

    names, rights = ClusterNames(ObjectKey(namespace, CLUSTER)), MySQLEngine.permissions
    store = names.dcs_of("mysql").all_keys
    client.apply(rbac.service_account(names, {}))
    client.apply(
        rbac.role(names, {}, rights, dcs_config_maps=store, instances=range(count), writable=[f"{CLUSTER}-rw"])
    )
    client.apply(rbac.role_binding(names, {}))
    client.apply(core.ConfigMap(metadata=metadata(group.key.name)))
    group.annotate(group_name=GROUP_NAME, instances=",".join(map(str, range(count))))
    labels = {
        "app.kubernetes.io/name": "mysql",
        "app.kubernetes.io/instance": CLUSTER,
        "app.kubernetes.io/managed-by": "steersman-databases",
        "kubernetes.io/service-name": f"{CLUSTER}-rw",
    }
    ports = [discovery.EndpointPort(name="sql", port=3306, protocol="TCP")]
    slice_metadata = metadata(f"{CLUSTER}-rw-ipv4", **labels)
    client.apply(discovery.EndpointSlice(metadata=slice_metadata, address_type="IPv4", ports=ports))


def mount_files(directory: Path, root: Path, servers: CertificateAuthority, clients: CertificateAuthority) -> None:
    """What is mounted into a pod, and what the image has. `root` has MySQL."""
    for name in ("", "volume", "tls", "peer"):
        (directory / name).mkdir()
    (directory / "log").touch()
    (directory / "accounts.sql").write_text(ACCOUNTS)
    (directory / "slices").write_text(f"{CLUSTER}-rw-ipv4\n")
    (directory / "image.cnf").write_text(
        f"[mysqld]\nbasedir = {root}/usr\nlc_messages_dir = {root}/usr/share/mysql\n"
        f"plugin_dir = {root}/usr/lib/mysql/plugin\ntmpdir = {directory}\nsecure_file_priv = NULL\n"
        # Tables in memory need no journal on a disk, and three servers side by side no more than this.
        "innodb_flush_method = nosync\ninnodb_buffer_pool_size = 64M\ninnodb_redo_log_capacity = 16M\n"
        "performance_schema_max_digest_length = 0\ntable_open_cache = 400\n"
    )
    (directory / "time-zones.sql").write_text(TIME_ZONES)
    _show(directory, servers)
    _mount(directory / "peer", *clients.issue("steersman_replication"), clients.certificate)
    _chown(directory)


def _show(directory: Path, authority: CertificateAuthority) -> None:
    certificate, key = authority.issue("server", names=[f"{CLUSTER}-rw"])
    _mount(directory / "tls", certificate, key, authority.certificate)


def _mount(directory: Path, certificate: bytes, key: bytes, bundle: bytes) -> None:
    """A Secret with a certificate, changed at once as a kubelet does it."""
    fresh = directory.with_name(f"..{directory.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    for name, content in {"tls.crt": certificate, "tls.key": key, "ca.crt": bundle}.items():
        (fresh / name).write_bytes(content)
    _chown(fresh)
    shutil.rmtree(directory)
    fresh.rename(directory)


def _chown(path: Path) -> None:
    """Gives it to who the servers run as."""
    if os.getuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
