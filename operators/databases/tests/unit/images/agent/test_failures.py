"""What a member tries in vain stands on its pod, until it succeeds."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from framework_support.certificates import CertificateAuthority
from steersman_agent import agent
from steersman_agent.agent import Agent, PodCluster
from steersman_agent.failures import CERTIFICATE_RELOAD, GROUP_MEMBERSHIP, FailureLog
from steersman_agent.group import group_config, group_status
from steersman_agent.group.decision import GroupMember, GroupView, MemberDecision, MemberState
from steersman_agent.kubernetes import KubernetesApi
from steersman_agent.server import certificates, restart_backoff
from steersman_agent.server.process import MySQLServer, ServerFailed, ServerPaths
from steersman_agent.server.restart_backoff import RestartBackoff
from steersman_instance.gtids import GtidSet
from steersman_pod import rw_endpoints

BROKEN = b"-----BEGIN CERTIFICATE-----\nMIIBx\n-----END CERTIFICATE-----\n"


class Api(KubernetesApi):
    """Of a group of two, of whom 0 is primary; it remembers what this member says."""

    def __init__(self, view: str = "") -> None:
        self.said: list[Mapping[str, Any]] = []
        self.view = view
        self.state: MemberState = "Online"

    def get(self, path: str) -> Mapping[str, Any] | None:
        if "labelSelector" in path:
            return {
                "items": [
                    pod(GroupMember(instance=n, state=self.state, primary=n == 0, address=f"[::1]:{n}"))
                    for n in (0, 1)
                ]
            }
        agreed = {
            group_config.GROUP: json.dumps({"epoch": 1, "view": self.view}),
            group_config.GROUP_NAME: "g",
            group_config.INSTANCES: "0,1,2",
        }
        return {"metadata": {"resourceVersion": "1", "annotations": agreed}}

    def patch(self, path: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        if (member := change["metadata"]["annotations"].get(group_config.MEMBER)) is not None:
            self.said.append(json.loads(member))
        return {}

    @property
    def last(self) -> Mapping[str, Any]:
        """What it said last."""
        return self.said[-1] if self.said else {"state": "", "failingOperation": "", "reason": "", "diverged": None}

    @property
    def failing(self) -> str:
        """What it last said of it: to the operator, and to people."""
        assert str(self.last["reason"]).endswith(str(self.last["failingOperation"]))
        return str(self.last["failingOperation"])


def pod(member: GroupMember) -> Mapping[str, Any]:
    labels = {group_config.INSTANCE_LABEL: str(member.instance)}
    spec = {"hostname": f"my-{member.instance}-0", "subdomain": "my-headless"}
    return {
        "metadata": {"labels": labels, "annotations": {group_config.MEMBER: group_config.member_annotation(member)}},
        "spec": spec,
    }


class Played(MySQLServer):
    """One that runs, or one that has nothing and copies what it can."""

    def __init__(self, paths: ServerPaths, *, runs: bool) -> None:
        super().__init__(paths)
        self._runs, self._copied, self.asked, self.sound = runs, False, list[int](), True
        self.ended, self.starts = 0, 0
        self.taken = 0.0

    @property
    def cpu_seconds(self) -> float:
        return self.taken

    @property
    def is_running(self) -> bool:
        return self._runs

    @property
    def has_crashed(self) -> bool:
        return self.ended > 0

    def ends(self, ended: int = 0, words: str = "") -> None:
        self._runs, self._copied, self.ended, self.last_error = False, True, ended, words

    @property
    def has_data(self) -> bool:
        return self._copied

    def image_parameters(self) -> Mapping[str, str]:
        return {}

    def clone_from(self, options: Mapping[str, str], host: str, port: int) -> None:
        assert host == f"my-{port}-0.my-headless", "clone_valid_donor_list knows no addresses of IPv6"
        self.asked.append(port)
        if not self.sound:
            raise ServerFailed("(3862, 'Clone Donor Error: page corrupt.')\nand more")
        self._copied = True

    def rejected_parameters(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, str]:
        return {}

    def start(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        self.starts += 1
        self._runs = True

    def stop(self, seconds: float = 45) -> None:
        self._runs = False


def mount(directory: Path, authority: CertificateAuthority, *, broken: bool = False) -> None:
    for name in ("tls", "peer"):
        (directory / name).mkdir(exist_ok=True)
        certificate, key = authority.issue(name)
        shown = {"ca.crt": authority.certificate, "tls.crt": certificate, "tls.key": key}
        for file, content in shown.items():
            (directory / name / file).write_bytes(content + (BROKEN if broken and file == "ca.crt" else b""))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerPaths:
    """A pod's, where nothing is waited for."""
    monkeypatch.setattr(agent, "_RETRY_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(certificates, "_CHECK_INTERVAL_SECONDS", 0.0)
    mount(tmp_path, CertificateAuthority())
    (tmp_path / "epoch").write_text("1")
    return ServerPaths(
        volume=tmp_path, run=tmp_path, tls=tmp_path / "tls", peer=tmp_path / "peer", instance=2, program=("false",)
    )


def member(server: MySQLServer, api: Api) -> Agent:
    cluster = PodCluster(pod=rw_endpoints.PodIdentity("my-2-0", "shop", "uid", "node", ()), name="my")
    return Agent(cluster, server, lambda: api)


def until(one: Agent, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        one.tick()


def played(monkeypatch: pytest.MonkeyPatch, state: str, *, applier: int = 1062) -> list[str]:
    """A server that runs and answers; what it is asked to do. ``applier`` is the last error in what it applied."""
    done: list[str] = []

    def query_status(_: group_status.LocalServer) -> group_status.ServerStatus:
        return group_status.ServerStatus(
            uuid="a", version="", state=state, view="1:1", members=(), executed=GtidSet(), apply_queue=0, applied=0
        )

    def execute(_: group_status.LocalServer, *statements: str, seconds: float = 0) -> None:
        done.extend(statements)

    def applier_errors(_: group_status.LocalServer) -> frozenset[int]:
        return frozenset({applier} - {0})

    for each in (query_status, execute, applier_errors):
        monkeypatch.setattr(group_status.LocalServer, each.__name__, each)
    return done


def test_failed_clone_is_reported_and_uses_other_donor(place: ServerPaths) -> None:
    server, api = Played(place, runs=False), Api()
    server.sound, one = False, member(server, api)
    until(one, lambda: api.failing == "Clone failed: (3862, 'Clone Donor Error: page corrupt.') and more")
    until(one, lambda: len(server.asked) >= 4)
    assert server.asked[:4] == [1, 0, 1, 0]
    server.sound = True
    until(one, lambda: api.last["state"] == "Stopped" and not api.failing)


def test_unreadable_certificates_are_reported_until_replaced(
    place: ServerPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloads = played(monkeypatch, "ONLINE")
    api = Api()
    one = member(Played(place, runs=True), api)
    until(one, lambda: len(reloads) == 1)
    mount(tmp_path, CertificateAuthority(), broken=True)
    until(one, lambda: api.failing.startswith(f"{CERTIFICATE_RELOAD} failed: "))
    for _ in range(3):
        one.tick()
    assert api.failing and len(reloads) == 1
    mount(tmp_path, CertificateAuthority())
    until(one, lambda: len(reloads) == 2 and not api.failing)


def test_certificates_read_at_start_clear_failure(
    place: ServerPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloads = played(monkeypatch, "ONLINE")
    server, api = Played(place, runs=True), Api()
    one = member(server, api)
    until(one, lambda: len(reloads) == 1)
    mount(tmp_path, CertificateAuthority(), broken=True)
    until(one, lambda: bool(api.failing))
    server.ends()
    mount(tmp_path, CertificateAuthority())
    until(one, lambda: server.starts == 1 and not api.failing)


def test_applier_error_is_reported(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, "ERROR")
    api = Api()
    until(
        member(Played(place, runs=True), api),
        lambda: api.failing.startswith(f"{GROUP_MEMBERSHIP} failed: error 1062"),
    )


def test_applier_error_reports_divergence(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it serves again it has not."""
    played(monkeypatch, "RECOVERING")
    api = Api()
    one = member(Played(place, runs=True), api)
    until(one, lambda: api.last["diverged"] is True)
    played(monkeypatch, "RECOVERING", applier=0)
    until(one, lambda: api.last["diverged"] is False and not api.failing)
    played(monkeypatch, "ERROR")
    until(one, lambda: api.last["state"] == "Failed" and api.last["diverged"] is True)
    played(monkeypatch, "OFFLINE")
    until(one, lambda: api.last["state"] == "Offline" and api.last["diverged"] is True)
    played(monkeypatch, "ONLINE")
    until(one, lambda: api.last["state"] == "Online" and api.last["diverged"] is False)


def test_failed_join_for_data_reports_divergence(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it comes back, having said before why it left."""
    played(monkeypatch, "OFFLINE")

    def joins(_: GroupView) -> MemberDecision:
        return MemberDecision("Join", "instance 0 is online")

    monkeypatch.setattr(agent, "decide", joins)
    api = Api()
    one = member(Played(place, runs=True), api)
    until(one, lambda: "Join failed: " in api.failing and api.last["diverged"] is True)


@pytest.mark.parametrize("number", [0, 1114, 1205, 2003, 3])
def test_incurable_error_is_not_divergence(place: ServerPaths, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    played(monkeypatch, "ERROR", applier=number)
    api = Api()
    one = member(Played(place, runs=True), api)
    until(one, lambda: api.last["state"] == "Failed")
    for _ in range(3):
        one.tick()
    assert api.last["diverged"] is False


def test_crashing_server_is_not_started(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page: it starts, and ends itself when it comes to the one that is broken."""
    monkeypatch.setattr(restart_backoff, "_MAX_DELAY_SECONDS", 0.0)
    played(monkeypatch, "OFFLINE")
    server, api = Played(place, runs=True), Api()
    one = member(server, api)
    words = "[MY-012224] [InnoDB] Database page corruption on disk"
    one.tick()
    server.ends(2, words)
    until(one, lambda: server.starts == 1 and api.last["state"] == "Offline")
    assert not api.last["startError"], "what ends once may be well when it has been started again"
    server.ends(2, words)
    until(one, lambda: server.starts == 2 and api.last["state"] == "Offline")
    assert api.last["startError"] == words
    server.ends(2, words)
    one.tick()
    assert (api.last["state"], api.last["startError"]) == ("Stopped", words)
    played(monkeypatch, "ONLINE")
    until(one, lambda: api.last["state"] == "Online" and not api.last["startError"])


def test_crashed_server_is_restarted_with_backoff(place: ServerPaths) -> None:
    server, many = Played(place, runs=True), RestartBackoff()
    server.ends(1, "no space left")
    for _ in range(5000):
        many.record_start()
        many.record_exit(server)
    assert many.delay_seconds == 60.0 and many.message == "no space left"


def test_killed_after_crash_is_not_corruption(place: ServerPaths) -> None:
    server, told = Played(place, runs=True), RestartBackoff()
    told.record_start()
    server.ends(1, "no memory")
    told.record_exit(server)
    assert told.message
    told.record_start()
    told.record_ready()
    server.ends(-9)
    told.record_exit(server)
    assert not told.message and told.delay_seconds == 1.0


def test_killed_server_is_not_corruption(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart_backoff, "_MAX_DELAY_SECONDS", 0.0)
    played(monkeypatch, "OFFLINE")
    server, api = Played(place, runs=True), Api()
    one = member(server, api)
    for count in (1, 2, 3):
        one.tick()
        server.ends(-9, "[MY-010334] [Server] an error of a while ago")
        until(one, lambda count=count: server.starts == count and api.last["state"] == "Offline")
        assert not api.last["startError"]


def test_stalled_server_is_ended(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovering takes as long as it takes, but not then."""
    monkeypatch.setattr(restart_backoff, "_MAX_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(restart_backoff, "_STALLED_AFTER_SECONDS", -1.0)
    server, api = Played(place, runs=False), Api()
    server.ends(-9)
    one = member(server, api)
    words = "[MY-011904] [InnoDB] Space id and page number stored in the page read in"
    until(one, lambda: api.last["state"] == "Starting")
    one.tick()
    assert (api.last["startError"], server.starts, server.is_running) == ("", 1, True), "it recovers"
    server.data_unreadable, server.last_error = True, words
    until(one, lambda: server.starts == 2)
    assert api.last["startError"] == words
    server.data_unreadable = False
    played(monkeypatch, "ONLINE")
    until(one, lambda: api.last["state"] == "Online" and not api.last["startError"])


def leads(server: MySQLServer, monkeypatch: pytest.MonkeyPatch, states: Mapping[str, str]) -> None:
    """Has the primary, b, answer a server: it sees its group as in ``states``."""

    def ask(_: str) -> group_status.ServerStatus:
        return led_by_b(states)

    monkeypatch.setattr(server, "query_member", ask)


def led_by_b(states: Mapping[str, str]) -> group_status.ServerStatus:
    seen = [
        group_status.GroupPeer(uuid=uuid, host="", port=0, state=state, primary=uuid == "b")
        for uuid, state in states.items()
    ]
    return group_status.ServerStatus(
        uuid="b", version="", state="ONLINE", view="1:1", members=seen, executed=GtidSet(), apply_queue=0, applied=0
    )


def test_listed_member_does_not_join(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, "OFFLINE")
    server, api = Played(place, runs=True), Api(view="1:1")
    one, states = member(server, api), {"b": "ONLINE", "c": "ONLINE", "a": "UNREACHABLE"}

    leads(server, monkeypatch, states)
    for _ in range(3):
        one.tick()
        assert str(api.last["reason"]).startswith("the group has not put out yet")
    del states["a"]
    one.tick()
    assert (api.last["state"], api.last["reason"]) == ("Joining", "instance 1 is online")


def test_join_of_empty_group_does_not_wait(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its attempt ends after two minutes, and nobody may found a group before."""
    monkeypatch.setattr(agent, "_ALONE_AFTER_SECONDS", 0.1)
    played(monkeypatch, "OFFLINE")
    server, api, gone = Played(place, runs=True), Api(view="1:1"), threading.Event()
    leads(server, monkeypatch, {"b": "ONLINE"})

    def joins(_: group_status.LocalServer, *, founding: bool) -> None:
        assert not founding and gone.wait(20)
        raise group_status.ServerQueryFailed(OSError("the server is gone"))

    def stops(seconds: float = 45) -> None:
        server.ends(-9)
        gone.set()

    def sets(_: group_status.LocalServer, _name: str, _value: str) -> None: ...

    monkeypatch.setattr(group_status.LocalServer, "set_global", sets)
    monkeypatch.setattr(group_status.LocalServer, "start_group", joins)
    monkeypatch.setattr(server, "stop", stops)
    one = member(server, api)
    until(one, lambda: api.last["state"] == "Joining")
    for _ in range(5):
        time.sleep(0.05)
        one.tick()
    assert server.is_running, "somebody is there"
    api.state = "Offline"
    until(one, lambda: server.starts == 1 and api.last["state"] == "Offline")
    assert not api.last["startError"]


def test_slow_recovery_is_given_time(place: ServerPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    server, told = Played(place, runs=True), RestartBackoff()
    server.data_unreadable = True
    told.record_start()
    for _ in range(20):
        now, server.taken = now + 60, server.taken + 2
        assert not told.is_stalled(server), "it works"
    now += 119
    assert not told.is_stalled(server)
    now, server.taken = now + 2, server.taken + 0.1
    assert told.is_stalled(server)
    told.record_start()
    assert not told.is_stalled(server), "it was started anew"
    told.record_ready()
    now += 1000
    assert not told.is_stalled(server), "what was there before says nothing of what it waits for now"


@pytest.mark.parametrize(
    ("said", "unreadable"), [("[MY-011906] [InnoDB] Database page", True), ("[MY-010119] x", False)]
)
def test_server_log_reveals_unreadable_data(tmp_path: Path, said: str, unreadable: bool) -> None:
    program = tmp_path / "mysqld"
    program.write_text(f"#!/bin/sh\necho '17 0 [ERROR] {said}' >&2\nexec sleep 60\n")
    program.chmod(0o755)
    server = MySQLServer(ServerPaths(volume=tmp_path, run=tmp_path, program=(str(program),)))
    server.start({}, {})
    end = time.monotonic() + 20
    while server.last_error != said:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert server.cpu_seconds < 5
    server.stop()
    assert server.data_unreadable is unreadable


def test_failure_message_is_short_without_statement() -> None:
    failures = FailureLog()
    failures.record(
        "Join", "Error 'x' on query. Default database: ''.\nQuery: 'ALTER USER u IDENTIFIED AS '$A$005$s''"
    )
    assert failures.message == "Join failed: Error 'x' on query. Default database: ''."
    failures.record("Join", "x" * 5000)
    assert len(failures.message) < 400
    failures.clear("Join")
    assert not failures.message


def test_failures_are_cleared_once_online() -> None:
    failures = FailureLog()
    failures.record("Clone", "no", donor=1)
    failures.record("Found", "somebody else has")
    failures.record(CERTIFICATE_RELOAD, "no")
    failures.clear_all()
    assert failures.message == f"{CERTIFICATE_RELOAD} failed: no" and not failures.failed_donors
