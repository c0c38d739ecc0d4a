"""``kubectl steersman``: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import asyncio
import json
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

from database_support.plugin_under_test import GROUP, KEY, MEMBERS, Reached, call, reached, server, set_status
from steersman.client import Client, MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import MySQLCluster, PostgreSQLCluster
from steersman_databases.api.mysql_cluster import Loss
from steersman_databases.clusters.view import REPLACE, SWITCHOVER
from steersman_databases.kubectl import actions, place
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]

STOCK = ObjectKey(KEY.namespace, "stock")
OPERATOR = Path(__file__).parents[4] / "operators" / "databases"

GOLDEN = """\
Cluster:     prod/shop
Phase:       Degraded
Instances:   2 of 3 ready
Version:     17.5
Image:       steersman.dev/postgresql:17
Newer:       steersman.dev/postgresql:17.6
Switchover:  from shop-0 to shop-1, 2026-11-20 10:00:00 UTC

INSTANCE    ROLE      STATE       READY   LAG       TIMELINE   NODE     NOTES
shop-1      Primary   running     yes               4          node-2
├─ shop-0   Replica   streaming   yes     2.5 MiB   4          node-1
└─ shop-2   Replica   stopped     no                           node-3   fenced

Ready: InstanceNotReady
  shop-2 does not take connections
  Next: see the logs of the instance

Synchronous: NoSynchronousStandby
  no replica has all that was committed: see which replica is missing
"""

LIST = """\
NAME   INSTANCES   READY   PRIMARY   VERSION   PHASE
shop   3           2       shop-1    17.5      Degraded
"""


def written(server: InMemoryApiServer) -> dict[str, str]:
    cluster = server.read(PostgreSQLCluster, KEY)
    assert cluster is not None
    return {name.removeprefix(f"{GROUP}/"): value for name, value in cluster.metadata.annotations.items()}


def test_status_shows_a_cluster_its_topology_and_what_to_do(server: InMemoryApiServer) -> None:
    shown = call("status", "shop")
    assert shown.output == GOLDEN
    assert shown.exit_code == 0


def test_status_shows_who_is_synchronous(server: InMemoryApiServer) -> None:
    members = [{**one, "synchronous": True} if one["name"] == "shop-0" else one for one in MEMBERS]
    asyncio.run(set_status(server, {"members": members}))
    shown = call("status", "shop").output
    for row in (
        "shop-1      Primary          run",
        "├─ shop-0   Replica (sync)   str",
        "└─ shop-2   Replica          sto",
    ):
        assert f"\n{row}" in shown
    told = json.loads(call("status", "shop", "-o", "json").output)
    assert [member.get("synchronous") for member in told["members"]] == [None, True, None]


def test_status_lists_clusters(server: InMemoryApiServer) -> None:
    assert call("status").output == LIST
    everywhere = call("status", "-A").output.splitlines()
    assert [line.split()[0] for line in everywhere] == ["NAMESPACE", "prod"]
    nothing = call("status", "-n", "default")
    assert (nothing.stderr, nothing.exit_code) == ("No clusters found.\n", 0)


def test_status_before_anything_is_known(server: InMemoryApiServer) -> None:
    server.load(
        {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "PostgreSQLCluster",
            "metadata": {"name": "new", "namespace": KEY.namespace, "annotations": {f"{GROUP}/paused": "true"}},
            "spec": {},
        }
    )
    shown = call("status", "new").output
    assert "Pending (paused)" in shown
    assert "No instance is known yet." in shown


@pytest.fixture
def jane(reached: Reached) -> InMemoryApiServer:
    """Commands act as somebody who may write PostgreSQL's clusters and nothing else."""
    role = yaml.safe_load((OPERATOR / "config" / "rbac" / "postgresqlcluster_editor_role.yaml").read_text())
    reached.server.grant("jane", role)
    reached.user = "jane"
    return reached.server


def test_the_role_of_one_kind_suffices_for_its_clusters(jane: InMemoryApiServer) -> None:
    assert call("status", "shop").output == GOLDEN
    assert call("pause", "shop").output == "postgresqlcluster/shop paused\n"
    assert written(jane) == {"paused": "true"}


def test_a_list_says_which_kind_may_not_be_read(jane: InMemoryApiServer) -> None:
    listed = call("status")
    assert (listed.stdout, listed.exit_code) == (LIST, 0)
    assert listed.stderr.startswith("without MySQLClusters: mysqlclusters.databases.steersman.dev is forbidden")
    assert len(json.loads(call("status", "-o", "json").stdout)) == 1


def test_a_cluster_that_may_be_of_a_kind_that_may_not_be_read(jane: InMemoryApiServer) -> None:
    ended = call("status", "stock")
    assert ended.exit_code == 1
    assert 'mysqlclusters.databases.steersman.dev "stock" is forbidden' in ended.stderr
    assert 'postgresqlclusters.databases.steersman.dev "stock" not found' in ended.stderr


@pytest.mark.parametrize("arguments", [["status"], ["status", "shop"]])
def test_who_may_read_no_kind_is_told_of_all(reached: Reached, arguments: list[str]) -> None:
    reached.user = "joe"
    ended = call(*arguments)
    assert (ended.stdout, ended.exit_code) == ("", 1)
    for kind in ("mysqlclusters", "postgresqlclusters"):
        assert f'resource "{kind}"' in ended.stderr


@pytest.mark.parametrize(("phase", "code"), [("Ready", 0), ("Degraded", 1), ("Failed", 1)])
def test_check_ends_by_the_phase(server: InMemoryApiServer, phase: str, code: int) -> None:
    asyncio.run(set_status(server, {"phase": phase}))
    assert call("status", "shop", "--check").exit_code == code
    assert call("status", "--check").exit_code == code


def test_json_has_names_as_the_object_has_them(server: InMemoryApiServer) -> None:
    shown = json.loads(call("status", "shop", "-o", "json").stdout)
    assert shown["readyInstances"] == 2
    assert [member["name"] for member in shown["members"]] == ["shop-1", "shop-0", "shop-2"]
    assert shown["problems"][0]["nextStep"] == "see the logs of the instance"
    assert isinstance(json.loads(call("status", "-o", "json").stdout), list)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status", "other"], 1, "other"),
        (["switchover", "shop", "shop-7"], 2, "has no instance shop-7: it has shop-0, shop-1, shop-2"),
        (["switchover", "shop", "shop-1"], 1, "shop-1 is the primary already"),
        (["replace", "shop", "shop-7"], 2, "has no instance shop-7: it has shop-0, shop-1, shop-2"),
        (["replace", "shop", "shop-1"], 1, "shop-1 is the primary: make another instance that first"),
        (["fence", "shop"], 2, "name instances, or say --all"),
        (["fence", "shop", "shop-0", "--all"], 2, "name instances, or say --all"),
        (["fence", "shop", "shop-9"], 2, "has no instance shop-9"),
        (["logs", "shop"], 1, "has no pod now"),
        (["psql", "shop"], 1, "has no primary now"),
        (["psql", "shop", "--instance", "till-0"], 2, "has no instance till-0"),
        (["status", "shop", "-o", "xml"], 2, "xml"),
        (["unknown"], 2, "unknown"),
    ],
)
def test_what_cannot_be_is_said_and_ends_badly(
    server: InMemoryApiServer, arguments: list[str], code: int, words: str
) -> None:
    ended = call(*arguments)
    assert ended.exit_code == code
    assert words in ended.stderr
    assert written(server) == {}


def test_fences_are_put_up_and_taken_down_one_by_one(server: InMemoryApiServer) -> None:
    for arguments, fenced in [
        (["fence", "shop", "shop-2", "shop-0"], "shop-0,shop-2"),
        (["fence", "shop", "shop-2"], "shop-0,shop-2"),
        (["unfence", "shop", "shop-0"], "shop-2"),
        (["fence", "shop", "--all"], "*"),
        (["unfence", "shop", "shop-1"], "shop-0,shop-2"),
        (["unfence", "shop", "--all"], None),
    ]:
        assert call(*arguments).exit_code == 0
        assert written(server).get("fenced") == fenced
    told = json.loads(call("fence", "shop", "shop-0", "-o", "json").stdout)
    assert told == {"cluster": "shop", "done": "fenced: shop-0", "fenced": ["shop-0"]}


def test_a_fence_that_was_put_up_by_the_pods_name_is_taken_down(server: InMemoryApiServer) -> None:
    note = MergePatch({"metadata": {"annotations": {f"{GROUP}/fenced": "shop-1-0,shop-2"}}})
    asyncio.run(Client(server).patch(PostgreSQLCluster, KEY, note))
    assert call("unfence", "shop", "shop-1").exit_code == 0
    assert written(server)["fenced"] == "shop-2"


def test_what_was_done_names_the_kind(server: InMemoryApiServer) -> None:
    metadata = {"name": "stock", "namespace": KEY.namespace}
    server.load({"apiVersion": f"{GROUP}/v1alpha1", "kind": "MySQLCluster", "metadata": metadata, "spec": {}})
    assert call("pause", "stock").output == "mysqlcluster/stock paused\n"


def test_pause_restart_and_hibernation_are_written_where_the_operator_looks(server: InMemoryApiServer) -> None:
    assert call("pause", "shop").output == "postgresqlcluster/shop paused\n"
    assert written(server) == {"paused": "true"}
    call("resume", "shop")
    assert written(server) == {}
    call("restart", "shop")
    assert written(server)["restart"].endswith("Z")

    def hibernated() -> bool:
        cluster = server.read(PostgreSQLCluster, KEY)
        assert cluster is not None
        return cluster.spec.hibernated

    assert call("hibernate", "shop").output == "postgresqlcluster/shop hibernation requested\n"
    assert hibernated()
    call("wake", "shop")
    assert not hibernated()


def test_a_cluster_is_awake_when_all_are_ready_and_one_takes_writes_whatever_else_is_refused(
    server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "_LOOK_EVERY", 0.0)
    steps = [(0, "False"), (2, "True"), (3, "False"), (3, "True")]
    told = list[tuple[int, str]]()

    async def operator() -> None:
        while (cluster := server.read(PostgreSQLCluster, KEY)) is None or cluster.spec.hibernated:
            await asyncio.sleep(0)
        for ready, available in steps:
            told.append((ready, available))
            condition = {"type": "Available", "status": available, "reason": "Told", "message": ""}
            status = {
                "phase": "Degraded",
                "observedGeneration": cluster.metadata.generation,
                "readyInstances": ready,
                "conditions": [{**condition, "lastTransitionTime": "2026-11-20T10:00:00Z"}],
            }
            await set_status(server, status)
            # It looks again, several times.
            for _ in range(100):
                await asyncio.sleep(0)

    async def both() -> None:
        client = Client(server)
        await client.patch(PostgreSQLCluster, KEY, MergePatch({"spec": {"hibernated": True}}))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(operator())
            await actions.wake(client, KEY, seconds=30)
            assert told == steps

    asyncio.run(both())


def lost(server: InMemoryApiServer, reason: str) -> None:
    """A group none of whose instances surely has everything."""
    choices = [
        {"instance": "stock-1", "loss": {"instances": ["stock-0"]}},
        {"instance": "stock-2", "loss": {"instances": ["stock-0"], "transactions": "0b1f:812-815"}},
    ]
    condition = {"type": "Recoverable", "status": "False", "reason": reason, "message": "it is lost"}
    metadata = {"name": STOCK.name, "namespace": STOCK.namespace}
    server.load({"apiVersion": f"{GROUP}/v1alpha1", "kind": "MySQLCluster", "metadata": metadata, "spec": {}})
    status = {
        "outage": {"epoch": 4, "choices": choices},
        "conditions": [{**condition, "lastTransitionTime": "2026-11-20T10:00:00Z"}],
    }
    asyncio.run(Client(server).patch(MySQLCluster, STOCK, MergePatch({"status": status}), subresource="status"))


@pytest.mark.parametrize("reason", ["ConsentNeeded", "ConsentMismatch"])
def test_status_has_what_a_person_may_consent_to(server: InMemoryApiServer, reason: str) -> None:
    lost(server, reason)
    told = json.loads(call("status", "stock", "-o", "json").stdout)["outage"]
    assert (told["epoch"], [choice["instance"] for choice in told["choices"]]) == (4, ["stock-1", "stock-2"])
    shown = call("status", "stock").output.splitlines()
    consents = [line.removeprefix("  spec.recovery: ") for line in shown if line.startswith("  spec.recovery: ")]
    assert len(consents) == 2
    for consent in consents:
        body = MergePatch({"spec": {"recovery": json.loads(consent)}})
        asyncio.run(Client(server).patch(MySQLCluster, STOCK, body))
    taken = server.read(MySQLCluster, STOCK)
    assert taken is not None and taken.spec.recovery is not None
    assert (taken.spec.recovery.epoch, taken.spec.recovery.instance) == (4, "stock-2")
    assert taken.spec.recovery.loss == Loss(transactions="0b1f:812-815", instances=("stock-0",))


def test_status_has_nothing_to_consent_to_while_it_may_come_back(server: InMemoryApiServer) -> None:
    lost(server, "Recovering")
    assert "spec.recovery" not in call("status", "stock").output
    assert json.loads(call("status", "shop", "-o", "json").stdout)["outage"] is None


def switch(server: InMemoryApiServer, outcome: str) -> Result:
    """A switchover, with an operator that answers it as soon as it is asked for."""
    asked: list[str] = []

    async def look(client: Client, namespace: str) -> None:
        async def operator() -> None:
            while "switchover" not in written(server):
                await asyncio.sleep(0)
            asked.append(written(server)["switchover"])
            last = {"time": "2026-11-21T09:00:00Z", "former": "shop-1", "to": "shop-0", "outcome": outcome}
            await set_status(server, {"lastSwitchover": last})
            body = {"metadata": {"annotations": {SWITCHOVER: None}}}
            await Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(operator())
            await actions.switch_over(client, ObjectKey(namespace, "shop"), "any", seconds=30)

    async def both() -> None:
        await look(Client(server), KEY.namespace)

    asyncio.run(both())
    assert asked == ["any"]
    return call("status", "shop")


def test_a_switchover_is_waited_for(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "_LOOK_EVERY", 0.0)
    assert "Switchover:  from shop-1 to shop-0, 2026-11-21 09:00:00 UTC" in switch(server, "Succeeded").output


def test_a_refused_switchover_is_told(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "_LOOK_EVERY", 0.0)
    with pytest.raises(ExceptionGroup) as caught:
        switch(server, "refused: no replica may be promoted")
    assert str(caught.value.exceptions[0]) == "the switchover was refused: no replica may be promoted"


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        ("Requested", "to shop-0 requested, 2026-11-21 09:00:00 UTC"),
        (
            "refused: no replica may be promoted",
            "to shop-0 refused: no replica may be promoted, 2026-11-21 09:00:00 UTC",
        ),
    ],
)
def test_status_says_how_a_switchover_goes(server: InMemoryApiServer, outcome: str, shown: str) -> None:
    last = {"time": "2026-11-21T09:00:00Z", "former": "shop-1", "to": "shop-0", "outcome": outcome}
    asyncio.run(set_status(server, {"lastSwitchover": last}))
    assert f"Switchover:  {shown}\n" in call("status", "shop").output


def test_a_switchover_that_nobody_does_is_given_up(server: InMemoryApiServer) -> None:
    ended = call("switchover", "shop", "--timeout", "0")
    assert ended.exit_code == 1
    assert "the switchover of prod/shop has not ended after 0 s" in ended.stderr
    assert "databases.steersman.dev/switchover- takes it back" in ended.stderr
    assert call("switchover", "shop", "--no-wait").output == "postgresqlcluster/shop switchover requested\n"


@pytest.mark.parametrize("taken", [True, False])
def test_a_replacement_is_waited_for_until_nobody_asks_for_it_any_more(
    server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    monkeypatch.setattr(actions, "_LOOK_EVERY", 0.0)

    async def operator() -> None:
        while "replace" not in written(server):
            await asyncio.sleep(0)
        assert written(server)["replace"] == "shop-2"
        if taken:
            await set_status(server, {"members": MEMBERS[:2]})
        body = {"metadata": {"annotations": {REPLACE: None}}}
        await Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body))

    async def both() -> None:
        asked = actions.replace(Client(server), KEY, "shop-2", seconds=30)
        await asyncio.gather(operator(), asked)

    if taken:
        asyncio.run(both())
    else:
        with pytest.raises(place.Refused, match="describe postgresqlcluster shop says why"):
            asyncio.run(both())


def test_a_replacement_need_not_be_waited_for(server: InMemoryApiServer) -> None:
    told = call("replace", "shop", "shop-2", "--no-wait")
    assert told.output == "postgresqlcluster/shop replacement requested: shop-2\n"
    assert written(server)["replace"] == "shop-2"


def test_a_phase_of_before_ends_no_waiting(server: InMemoryApiServer) -> None:
    asyncio.run(set_status(server, {"phase": "Hibernated", "observedGeneration": 1}))
    stale = call("hibernate", "shop", "--wait", "--timeout", "0")
    assert stale.exit_code == 1
    assert "hibernation of prod/shop has not ended after 0 s; its phase is Hibernated" in stale.stderr
    asyncio.run(set_status(server, {"phase": "Hibernated", "observedGeneration": 2}))
    assert call("hibernate", "shop", "--wait").output == "postgresqlcluster/shop hibernated\n"


def test_kubectl_finds_the_plugin_by_its_name() -> None:
    project = tomllib.loads((OPERATOR / "pyproject.toml").read_text())
    entry = EntryPoint("kubectl-steersman", project["project"]["scripts"]["kubectl-steersman"], "console_scripts")
    assert callable(entry.load())


def test_each_command_has_an_example() -> None:
    listed = call("--help").output.partition("Commands:")[2].split("\n")
    commands = [line.split()[0] for line in listed if line.startswith("  ") and not line.startswith("   ")]
    assert len(commands) == 14
    for command in commands:
        assert f"Example: kubectl steersman {command}" in call(command, "--help").output
