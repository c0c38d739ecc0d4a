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
from steersman_agent import agent, certificates, group, starts, store
from steersman_agent.agent import Agent, Cluster
from steersman_agent.decision import Decision, Member, State, View
from steersman_agent.failures import CERTIFICATES, MEMBERSHIP, Failures
from steersman_agent.gtids import GtidSet
from steersman_agent.kubernetes import ApiServer
from steersman_agent.server import Place, Server, Trouble
from steersman_agent.starts import Starts
from steersman_pod import leading

BROKEN = b"-----BEGIN CERTIFICATE-----\nMIIBx\n-----END CERTIFICATE-----\n"


class Api(ApiServer):
    """Of a group of two, of whom 0 is primary; it remembers what this member says."""

    def __init__(self, view: str = "") -> None:
        self.said: list[Mapping[str, Any]] = []
        self.view = view
        self.state: State = "Online"

    def get(self, path: str) -> Mapping[str, Any] | None:
        if "labelSelector" in path:
            return {
                "items": [
                    pod(Member(instance=n, state=self.state, primary=n == 0, address=f"[::1]:{n}")) for n in (0, 1)
                ]
            }
        agreed = {
            store.GROUP: json.dumps({"epoch": 1, "view": self.view}),
            store.GROUP_NAME: "g",
            store.INSTANCES: "0,1,2",
        }
        return {"metadata": {"resourceVersion": "1", "annotations": agreed}}

    def patch(self, path: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        if (member := change["metadata"]["annotations"].get(store.MEMBER)) is not None:
            self.said.append(json.loads(member))
        return {}

    @property
    def last(self) -> Mapping[str, Any]:
        """What it said last."""
        return self.said[-1] if self.said else {"state": "", "failing": "", "because": "", "diverged": None}

    @property
    def failing(self) -> str:
        """What it last said of it: to the operator, and to people."""
        assert str(self.last["because"]).endswith(str(self.last["failing"]))
        return str(self.last["failing"])


def pod(member: Member) -> Mapping[str, Any]:
    labels = {store.INSTANCE_LABEL: str(member.instance)}
    spec = {"hostname": f"my-{member.instance}-0", "subdomain": "my-headless"}
    return {"metadata": {"labels": labels, "annotations": {store.MEMBER: store.member_words(member)}}, "spec": spec}


class Played(Server):
    """One that runs, or one that has nothing and copies what it can."""

    def __init__(self, place: Place, *, runs: bool) -> None:
        super().__init__(place)
        self._runs, self._copied, self.asked, self.sound = runs, False, list[int](), True
        self.ended, self.starts = 0, 0
        self.taken = 0.0

    @property
    def used(self) -> float:
        return self.taken

    @property
    def runs(self) -> bool:
        return self._runs

    @property
    def broke_off(self) -> bool:
        return self.ended > 0

    def ends(self, ended: int = 0, words: str = "") -> None:
        self._runs, self._copied, self.ended, self.last_words = False, True, ended, words

    @property
    def has_data(self) -> bool:
        return self._copied

    def image_parameters(self) -> Mapping[str, str]:
        return {}

    def copy(self, options: Mapping[str, str], host: str, port: int) -> None:
        assert host == f"my-{port}-0.my-headless", "clone_valid_donor_list knows no addresses of IPv6"
        self.asked.append(port)
        if not self.sound:
            raise Trouble("(3862, 'Clone Donor Error: page corrupt.')\nand more")
        self._copied = True

    def refused(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, str]:
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
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A pod's, where nothing is waited for."""
    monkeypatch.setattr(agent, "_PAUSE", 0.0)
    monkeypatch.setattr(certificates, "_EVERY", 0.0)
    mount(tmp_path, CertificateAuthority())
    (tmp_path / "epoch").write_text("1")
    return Place(
        volume=tmp_path, run=tmp_path, tls=tmp_path / "tls", peer=tmp_path / "peer", instance=2, program=("false",)
    )


def member(server: Server, api: Api) -> Agent:
    cluster = Cluster(pod=leading.Pod("my-2-0", "shop", "uid", "node", ()), name="my")
    return Agent(cluster, server, lambda: api)


def until(one: Agent, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        one.tick()


def played(monkeypatch: pytest.MonkeyPatch, state: str, *, applier: int = 1062) -> list[str]:
    """A server that runs and answers; what it is asked to do. ``applier`` is the last error in what it applied."""
    done: list[str] = []

    def look(_: group.LocalServer) -> group.Look:
        return group.Look(
            uuid="a", version="", state=state, view="1:1", members=(), has=GtidSet(), queued=0, applied=0
        )

    def do(_: group.LocalServer, *statements: str, seconds: float = 0) -> None:
        done.extend(statements)

    def applier_errors(_: group.LocalServer) -> frozenset[int]:
        return frozenset({applier} - {0})

    for each in (look, do, applier_errors):
        monkeypatch.setattr(group.LocalServer, each.__name__, each)
    return done


def test_a_copy_that_fails_is_told_and_had_of_another(place: Place) -> None:
    server, api = Played(place, runs=False), Api()
    server.sound, one = False, member(server, api)
    until(one, lambda: api.failing == "Clone failed: (3862, 'Clone Donor Error: page corrupt.') and more")
    until(one, lambda: len(server.asked) >= 4)
    assert server.asked[:4] == [1, 0, 1, 0]
    server.sound = True
    until(one, lambda: api.last["state"] == "Stopped" and not api.failing)


def test_certificates_that_cannot_be_read_are_told_until_there_are_others(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloads = played(monkeypatch, "ONLINE")
    api = Api()
    one = member(Played(place, runs=True), api)
    until(one, lambda: len(reloads) == 1)
    mount(tmp_path, CertificateAuthority(), broken=True)
    until(one, lambda: api.failing.startswith(f"{CERTIFICATES} failed: "))
    for _ in range(3):
        one.tick()
    assert api.failing and len(reloads) == 1
    mount(tmp_path, CertificateAuthority())
    until(one, lambda: len(reloads) == 2 and not api.failing)


def test_certificates_that_a_start_has_read_are_told_no_more(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_an_error_of_what_is_applied_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    played(monkeypatch, "ERROR")
    api = Api()
    until(member(Played(place, runs=True), api), lambda: api.failing.startswith(f"{MEMBERSHIP} failed: error 1062"))


def test_a_replica_that_cannot_apply_what_the_group_has_is_said_to_have_other_data(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_replica_that_cannot_even_join_for_its_data_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it comes back, having said before why it left."""
    played(monkeypatch, "OFFLINE")

    def joins(_: View) -> Decision:
        return Decision("Join", "instance 0 is online")

    monkeypatch.setattr(agent, "decide", joins)
    api = Api()
    one = member(Played(place, runs=True), api)
    until(one, lambda: "Join failed: " in api.failing and api.last["diverged"] is True)


@pytest.mark.parametrize("number", [0, 1114, 1205, 2003, 3])
def test_what_a_copy_would_not_cure_is_no_divergence(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    played(monkeypatch, "ERROR", applier=number)
    api = Api()
    one = member(Played(place, runs=True), api)
    until(one, lambda: api.last["state"] == "Failed")
    for _ in range(3):
        one.tick()
    assert api.last["diverged"] is False


def test_a_server_that_answers_and_breaks_off_again_is_one_that_does_not_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page: it starts, and ends itself when it comes to the one that is broken."""
    monkeypatch.setattr(starts, "_LONGEST", 0.0)
    played(monkeypatch, "OFFLINE")
    server, api = Played(place, runs=True), Api()
    one = member(server, api)
    words = "[MY-012224] [InnoDB] Database page corruption on disk"
    one.tick()
    server.ends(2, words)
    until(one, lambda: server.starts == 1 and api.last["state"] == "Offline")
    assert not api.last["unstarted"], "what ends once may be well when it has been started again"
    server.ends(2, words)
    until(one, lambda: server.starts == 2 and api.last["state"] == "Offline")
    assert api.last["unstarted"] == words
    server.ends(2, words)
    one.tick()
    assert (api.last["state"], api.last["unstarted"]) == ("Stopped", words)
    played(monkeypatch, "ONLINE")
    until(one, lambda: api.last["state"] == "Online" and not api.last["unstarted"])


def test_it_is_started_anew_however_often_it_has_ended(place: Place) -> None:
    server, many = Played(place, runs=True), Starts()
    server.ends(1, "no space left")
    for _ in range(5000):
        many.begun()
        many.ended(server)
    assert many.pause == 60.0 and many.words == "no space left"


def test_who_is_killed_after_it_broke_off_says_nothing_of_its_data(place: Place) -> None:
    server, told = Played(place, runs=True), Starts()
    told.begun()
    server.ends(1, "no memory")
    told.ended(server)
    assert told.words
    told.begun()
    told.answers()
    server.ends(-9)
    told.ended(server)
    assert not told.words and told.pause == 1.0


def test_a_server_that_is_killed_says_nothing_of_its_data(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "_LONGEST", 0.0)
    played(monkeypatch, "OFFLINE")
    server, api = Played(place, runs=True), Api()
    one = member(server, api)
    for count in (1, 2, 3):
        one.tick()
        server.ends(-9, "[MY-010334] [Server] an error of a while ago")
        until(one, lambda count=count: server.starts == count and api.last["state"] == "Offline")
        assert not api.last["unstarted"]


def test_a_server_that_stands_still_over_what_it_cannot_read_is_ended_and_does_not_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovering takes as long as it takes, but not then."""
    monkeypatch.setattr(starts, "_LONGEST", 0.0)
    monkeypatch.setattr(starts, "_STANDS_STILL", -1.0)
    server, api = Played(place, runs=False), Api()
    server.ends(-9)
    one = member(server, api)
    words = "[MY-011904] [InnoDB] Space id and page number stored in the page read in"
    until(one, lambda: api.last["state"] == "Starting")
    one.tick()
    assert (api.last["unstarted"], server.starts, server.runs) == ("", 1, True), "it recovers"
    server.unreadable, server.last_words = True, words
    until(one, lambda: server.starts == 2)
    assert api.last["unstarted"] == words
    server.unreadable = False
    played(monkeypatch, "ONLINE")
    until(one, lambda: api.last["state"] == "Online" and not api.last["unstarted"])


def leads(server: Server, monkeypatch: pytest.MonkeyPatch, states: Mapping[str, str]) -> None:
    """Has the primary, b, answer a server: it sees its group as in ``states``."""

    def ask(_: str) -> group.Look:
        return led_by_b(states)

    monkeypatch.setattr(server, "ask", ask)


def led_by_b(states: Mapping[str, str]) -> group.Look:
    seen = [
        group.Other(uuid=uuid, host="", port=0, state=state, primary=uuid == "b") for uuid, state in states.items()
    ]
    return group.Look(
        uuid="b", version="", state="ONLINE", view="1:1", members=seen, has=GtidSet(), queued=0, applied=0
    )


def test_who_is_still_a_member_in_the_eyes_of_the_group_does_not_join(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(monkeypatch, "OFFLINE")
    server, api = Played(place, runs=True), Api(view="1:1")
    one, states = member(server, api), {"b": "ONLINE", "c": "ONLINE", "a": "UNREACHABLE"}

    leads(server, monkeypatch, states)
    for _ in range(3):
        one.tick()
        assert str(api.last["because"]).startswith("the group has not put out yet")
    del states["a"]
    one.tick()
    assert (api.last["state"], api.last["because"]) == ("Joining", "instance 1 is online")


def test_who_joins_a_group_that_everybody_has_left_does_not_wait_for_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempt ends after two minutes, and nobody may found a group before."""
    monkeypatch.setattr(agent, "_DESERTED", 0.1)
    played(monkeypatch, "OFFLINE")
    server, api, gone = Played(place, runs=True), Api(view="1:1"), threading.Event()
    leads(server, monkeypatch, {"b": "ONLINE"})

    def joins(_: group.LocalServer, *, founding: bool) -> None:
        assert not founding and gone.wait(20)
        raise group.Unreachable(OSError("the server is gone"))

    def stops(seconds: float = 45) -> None:
        server.ends(-9)
        gone.set()

    def sets(_: group.LocalServer, _name: str, _value: str) -> None: ...

    monkeypatch.setattr(group.LocalServer, "set_global", sets)
    monkeypatch.setattr(group.LocalServer, "start_group", joins)
    monkeypatch.setattr(server, "stop", stops)
    one = member(server, api)
    until(one, lambda: api.last["state"] == "Joining")
    for _ in range(5):
        time.sleep(0.05)
        one.tick()
    assert server.runs, "somebody is there"
    api.state = "Offline"
    until(one, lambda: server.starts == 1 and api.last["state"] == "Offline")
    assert not api.last["unstarted"]


def test_one_that_reads_what_is_broken_has_its_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    server, told = Played(place, runs=True), Starts()
    server.unreadable = True
    told.begun()
    for _ in range(20):
        now, server.taken = now + 60, server.taken + 2
        assert not told.stands_still(server), "it works"
    now += 119
    assert not told.stands_still(server)
    now, server.taken = now + 2, server.taken + 0.1
    assert told.stands_still(server)
    told.begun()
    assert not told.stands_still(server), "it was started anew"
    told.answers()
    now += 1000
    assert not told.stands_still(server), "what was there before says nothing of what it waits for now"


@pytest.mark.parametrize(
    ("said", "unreadable"), [("[MY-011906] [InnoDB] Database page", True), ("[MY-010119] x", False)]
)
def test_a_servers_log_tells_whether_it_can_read_its_data(tmp_path: Path, said: str, unreadable: bool) -> None:
    program = tmp_path / "mysqld"
    program.write_text(f"#!/bin/sh\necho '17 0 [ERROR] {said}' >&2\nexec sleep 60\n")
    program.chmod(0o755)
    server = Server(Place(volume=tmp_path, run=tmp_path, program=(str(program),)))
    server.start({}, {})
    end = time.monotonic() + 20
    while server.last_words != said:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert server.used < 5
    server.stop()
    assert server.unreadable is unreadable


def test_what_is_told_is_short_and_tells_no_statement() -> None:
    failures = Failures()
    failures.failed(
        "Join", "Error 'x' on query. Default database: ''.\nQuery: 'ALTER USER u IDENTIFIED AS '$A$005$s''"
    )
    assert failures.words == "Join failed: Error 'x' on query. Default database: ''."
    failures.failed("Join", "x" * 5000)
    assert len(failures.words) < 400
    failures.succeeded("Join")
    assert not failures.words


def test_what_went_wrong_on_the_way_is_forgotten_once_it_serves() -> None:
    failures = Failures()
    failures.failed("Clone", "no", donor=1)
    failures.failed("Found", "somebody else has")
    failures.failed(CERTIFICATES, "no")
    failures.all_is_well()
    assert failures.words == f"{CERTIFICATES} failed: no" and not failures.donors
