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

from database_support.unit.plugin import GROUP, KEY, MEMBERS, PluginServer, call, reached, server, set_status
from steersman.client import Client, MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import MySQLCluster, PostgreSQLCluster
from steersman_databases.api.mysql_cluster import DataLoss
from steersman_databases.cluster.declared import REPLACE_ANNOTATION, SWITCHOVER_ANNOTATION
from steersman_databases.kubectl import cluster_actions
from steersman_databases.kubectl import command as kubectl_command
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]

STOCK = ObjectKey(KEY.namespace, "stock")
OPERATOR = Path(__file__).parents[5] / "operators" / "databases"

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
  Next: Read the logs of the instance

Synchronous: NoSynchronousStandby
  no replica is a synchronous standby. Check the replicas in status.members
"""

LIST = """\
NAME   INSTANCES   READY   PRIMARY   VERSION   PHASE
shop   3           2       shop-1    17.5      Degraded
"""


def written(server: InMemoryApiServer) -> dict[str, str]:
    cluster = server.read(PostgreSQLCluster, KEY)
    assert cluster is not None
    return {name.removeprefix(f"{GROUP}/"): value for name, value in cluster.metadata.annotations.items()}


def test_status_shows_topology_and_advice(server: InMemoryApiServer) -> None:
    shown = call("status", "shop")
    assert shown.output == GOLDEN
    assert shown.exit_code == 0


def test_status_shows_synchronous_standbys(server: InMemoryApiServer) -> None:
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


def test_status_without_status_is_shown(server: InMemoryApiServer) -> None:
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
    assert "No instances yet." in shown


@pytest.fixture
def jane(reached: PluginServer) -> InMemoryApiServer:
    """Commands act as somebody who may write PostgreSQL's clusters and nothing else."""
    role = yaml.safe_load((OPERATOR / "config" / "rbac" / "postgresqlcluster_editor_role.yaml").read_text())
    reached.server.grant("jane", role)
    reached.user = "jane"
    return reached.server


def test_status_needs_rights_on_one_kind_only(jane: InMemoryApiServer) -> None:
    assert call("status", "shop").output == GOLDEN
    assert call("pause", "shop").output == "postgresqlcluster/shop paused\n"
    assert written(jane) == {"paused": "true"}


def test_status_list_names_unreadable_kind(jane: InMemoryApiServer) -> None:
    listed = call("status")
    assert (listed.stdout, listed.exit_code) == (LIST, 0)
    assert listed.stderr.startswith("without MySQLClusters: mysqlclusters.databases.steersman.dev is forbidden")
    assert len(json.loads(call("status", "-o", "json").stdout)) == 1


def test_status_of_possibly_unreadable_kind_says_so(jane: InMemoryApiServer) -> None:
    ended = call("status", "stock")
    assert ended.exit_code == 1
    assert 'mysqlclusters.databases.steersman.dev "stock" is forbidden' in ended.stderr
    assert 'postgresqlclusters.databases.steersman.dev "stock" not found' in ended.stderr


@pytest.mark.parametrize("arguments", [["status"], ["status", "shop"]])
def test_status_without_any_right_names_all_kinds(reached: PluginServer, arguments: list[str]) -> None:
    reached.user = "joe"
    ended = call(*arguments)
    assert (ended.stdout, ended.exit_code) == ("", 1)
    for kind in ("mysqlclusters", "postgresqlclusters"):
        assert f'resource "{kind}"' in ended.stderr


@pytest.mark.parametrize(("phase", "code"), [("Ready", 0), ("Degraded", 1), ("Failed", 1)])
def test_status_check_exit_code_follows_phase(server: InMemoryApiServer, phase: str, code: int) -> None:
    asyncio.run(set_status(server, {"phase": phase}))
    assert call("status", "shop", "--check").exit_code == code
    assert call("status", "--check").exit_code == code


def test_status_json_uses_field_names_of_object(server: InMemoryApiServer) -> None:
    shown = json.loads(call("status", "shop", "-o", "json").stdout)
    assert shown["readyInstances"] == 2
    assert [member["name"] for member in shown["members"]] == ["shop-1", "shop-0", "shop-2"]
    assert shown["problems"][0]["nextStep"] == "Read the logs of the instance"
    assert isinstance(json.loads(call("status", "-o", "json").stdout), list)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["status", "other"], 1, "other"),
        (["switchover", "shop", "shop-7"], 2, "has no instance shop-7: it has shop-0, shop-1, shop-2"),
        (["switchover", "shop", "shop-1"], 1, "shop-1 is already the primary"),
        (["replace", "shop", "shop-7"], 2, "has no instance shop-7: it has shop-0, shop-1, shop-2"),
        (["replace", "shop", "shop-1"], 1, "shop-1 is the primary. Switch over to another instance first"),
        (["fence", "shop"], 2, "list instances, or use --all"),
        (["fence", "shop", "shop-0", "--all"], 2, "list instances, or use --all"),
        (["fence", "shop", "shop-9"], 2, "has no instance shop-9"),
        (["logs", "shop"], 1, "has no pod"),
        (["psql", "shop"], 1, "has no primary"),
        (["psql", "shop", "--instance", "till-0"], 2, "has no instance till-0"),
        (["status", "shop", "-o", "xml"], 2, "xml"),
        (["unknown"], 2, "unknown"),
    ],
)
def test_invalid_usage_exits_with_message(
    server: InMemoryApiServer, arguments: list[str], code: int, words: str
) -> None:
    ended = call(*arguments)
    assert ended.exit_code == code
    assert words in ended.stderr
    assert written(server) == {}


def test_fence_and_unfence_change_one_instance(server: InMemoryApiServer) -> None:
    for arguments, fenced in [
        (["fence", "shop", "shop-2", "shop-0"], "shop-0,shop-2"),
        (["fence", "shop", "shop-2"], "shop-0,shop-2"),
        (["unfence", "shop", "shop-0"], "shop-2"),
        (["fence", "shop", "--all"], "*"),
        (["unfence", "shop", "shop-1"], "shop-0,shop-2"),
        (["unfence", "shop", "--all"], None),
    ]:
        assert call(*arguments).exit_code == 0
        assert written(server).get("fenced-instances") == fenced
    told = json.loads(call("fence", "shop", "shop-0", "-o", "json").stdout)
    assert told == {"cluster": "shop", "action": "fenced: shop-0", "fenced": ["shop-0"]}


def test_unfence_accepts_pod_name(server: InMemoryApiServer) -> None:
    note = MergePatch({"metadata": {"annotations": {f"{GROUP}/fenced-instances": "shop-1-0,shop-2"}}})
    asyncio.run(Client(server).patch(PostgreSQLCluster, KEY, note))
    assert call("unfence", "shop", "shop-1").exit_code == 0
    assert written(server)["fenced-instances"] == "shop-2"


def test_result_names_the_kind(server: InMemoryApiServer) -> None:
    metadata = {"name": "stock", "namespace": KEY.namespace}
    server.load({"apiVersion": f"{GROUP}/v1alpha1", "kind": "MySQLCluster", "metadata": metadata, "spec": {}})
    assert call("pause", "stock").output == "mysqlcluster/stock paused\n"


@pytest.mark.requirement("overview/repeatable-operations")
def test_pause_restart_hibernate_write_annotations(server: InMemoryApiServer) -> None:
    assert call("pause", "shop").output == "postgresqlcluster/shop paused\n"
    assert written(server) == {"paused": "true"}
    call("resume", "shop")
    assert written(server) == {}
    call("restart", "shop")
    assert written(server)["restarted-at"].endswith("Z")

    def hibernated() -> bool:
        cluster = server.read(PostgreSQLCluster, KEY)
        assert cluster is not None
        return cluster.spec.hibernated

    assert call("hibernate", "shop").output == "postgresqlcluster/shop hibernation requested\n"
    assert hibernated()
    call("wake", "shop")
    assert not hibernated()


def test_wake_waits_for_all_ready_and_primary(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_actions, "_POLL_SECONDS", 0.0)
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
            await cluster_actions.wake(client, KEY, timeout_seconds=30)
            assert told == steps

    asyncio.run(both())


def lost(server: InMemoryApiServer, reason: str) -> None:
    """A group none of whose instances surely has everything."""
    choices = [
        {"instance": "stock-1", "loss": {"instances": ["stock-0"]}},
        {"instance": "stock-2", "loss": {"instances": ["stock-0"], "transactions": "0b1f:812-815"}},
    ]
    condition = {"type": "OutageRecoverable", "status": "False", "reason": reason, "message": "it is lost"}
    metadata = {"name": STOCK.name, "namespace": STOCK.namespace}
    server.load({"apiVersion": f"{GROUP}/v1alpha1", "kind": "MySQLCluster", "metadata": metadata, "spec": {}})
    status = {
        "outage": {"epoch": 4, "choices": choices},
        "conditions": [{**condition, "lastTransitionTime": "2026-11-20T10:00:00Z"}],
    }
    asyncio.run(Client(server).patch(MySQLCluster, STOCK, MergePatch({"status": status}), subresource="status"))


@pytest.mark.parametrize("reason", ["ConsentRequired", "ConsentMismatch"])
def test_status_shows_recovery_snippet(server: InMemoryApiServer, reason: str) -> None:
    lost(server, reason)
    told = json.loads(call("status", "stock", "-o", "json").stdout)["outage"]
    assert (told["epoch"], [choice["instance"] for choice in told["choices"]]) == (4, ["stock-1", "stock-2"])
    shown = call("status", "stock").output.splitlines()
    consents = [
        line.removeprefix("  spec.forceRecovery: ") for line in shown if line.startswith("  spec.forceRecovery: ")
    ]
    assert len(consents) == 2
    for consent in consents:
        body = MergePatch({"spec": {"forceRecovery": json.loads(consent)}})
        asyncio.run(Client(server).patch(MySQLCluster, STOCK, body))
    taken = server.read(MySQLCluster, STOCK)
    assert taken is not None and taken.spec.force_recovery is not None
    assert (taken.spec.force_recovery.epoch, taken.spec.force_recovery.instance) == (4, "stock-2")
    assert taken.spec.force_recovery.loss == DataLoss(transactions="0b1f:812-815", instances=("stock-0",))


def test_status_shows_no_snippet_if_recovery_is_possible(server: InMemoryApiServer) -> None:
    lost(server, "Recovering")
    assert "spec.forceRecovery" not in call("status", "stock").output
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
            body = {"metadata": {"annotations": {SWITCHOVER_ANNOTATION: None}}}
            await Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(operator())
            await cluster_actions.switch_over(client, ObjectKey(namespace, "shop"), "any", timeout_seconds=30)

    async def both() -> None:
        await look(Client(server), KEY.namespace)

    asyncio.run(both())
    assert asked == ["any"]
    return call("status", "shop")


def test_switchover_waits_until_done(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_actions, "_POLL_SECONDS", 0.0)
    assert "Switchover:  from shop-1 to shop-0, 2026-11-21 09:00:00 UTC" in switch(server, "Succeeded").output


def test_switchover_rejected_is_reported(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_actions, "_POLL_SECONDS", 0.0)
    with pytest.raises(ExceptionGroup) as caught:
        switch(server, "rejected: no replica can be promoted")
    assert str(caught.value.exceptions[0]) == "the switchover was rejected: no replica can be promoted"


@pytest.mark.parametrize(
    ("outcome", "shown"),
    [
        ("Requested", "to shop-0 requested, 2026-11-21 09:00:00 UTC"),
        (
            "rejected: no replica can be promoted",
            "to shop-0 rejected: no replica can be promoted, 2026-11-21 09:00:00 UTC",
        ),
    ],
)
def test_status_shows_last_switchover(server: InMemoryApiServer, outcome: str, shown: str) -> None:
    last = {"time": "2026-11-21T09:00:00Z", "former": "shop-1", "to": "shop-0", "outcome": outcome}
    asyncio.run(set_status(server, {"lastSwitchover": last}))
    assert f"Switchover:  {shown}\n" in call("status", "shop").output


def test_status_shows_pending_disruptions_and_window(server: InMemoryApiServer) -> None:
    waiting = "shop-0: image X is available; waiting for the maintenance window at 2026-11-29 02:00 UTC"
    status = {
        "nextWindow": "2026-11-29T02:00:00Z",
        "pendingDisruptions": [{"instance": "shop-0", "type": "Recreate", "reason": "image X is available"}],
        "conditions": [{"type": "UpToDate", "status": "False", "reason": "WaitingForWindow", "message": waiting}],
    }
    asyncio.run(set_status(server, status))
    shown = call("status", "shop").output
    assert "Window:      2026-11-29 02:00:00 UTC\n" in shown
    assert "Pending:     shop-0: image X is available\n" in shown
    assert "WaitingForWindow" not in shown, "it is not a problem"
    content = json.loads(call("status", "shop", "-o", "json").stdout)
    assert content["nextWindow"] == "2026-11-29T02:00:00Z" and content["pendingDisruptions"][0]["type"] == "Recreate"


def test_switchover_without_operator_times_out(server: InMemoryApiServer) -> None:
    ended = call("switchover", "shop", "--timeout", "0")
    assert ended.exit_code == 1
    assert "the switchover of prod/shop has not ended after 0 s" in ended.stderr
    assert "databases.steersman.dev/switchover- cancels it" in ended.stderr
    assert call("switchover", "shop", "--no-wait").output == "postgresqlcluster/shop switchover requested\n"


@pytest.mark.parametrize("taken", [True, False])
def test_replace_waits_until_request_is_finished(
    server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    monkeypatch.setattr(cluster_actions, "_POLL_SECONDS", 0.0)

    async def operator() -> None:
        while "replace-instance" not in written(server):
            await asyncio.sleep(0)
        assert written(server)["replace-instance"] == "shop-2"
        if taken:
            await set_status(server, {"members": MEMBERS[:2]})
        body = {"metadata": {"annotations": {REPLACE_ANNOTATION: None}}}
        await Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body))

    async def both() -> None:
        asked = cluster_actions.replace(Client(server), KEY, "shop-2", timeout_seconds=30)
        await asyncio.gather(operator(), asked)

    if taken:
        asyncio.run(both())
    else:
        with pytest.raises(kubectl_command.OperationRejected, match="See kubectl describe postgresqlcluster shop"):
            asyncio.run(both())


def test_replace_without_wait_returns(server: InMemoryApiServer) -> None:
    told = call("replace", "shop", "shop-2", "--no-wait")
    assert told.output == "postgresqlcluster/shop replacement requested: shop-2\n"
    assert written(server)["replace-instance"] == "shop-2"


def test_old_phase_does_not_end_waiting(server: InMemoryApiServer) -> None:
    asyncio.run(set_status(server, {"phase": "Hibernated", "observedGeneration": 1}))
    stale = call("hibernate", "shop", "--wait", "--timeout", "0")
    assert stale.exit_code == 1
    assert "hibernation of prod/shop has not ended after 0 s; its phase is Hibernated" in stale.stderr
    asyncio.run(set_status(server, {"phase": "Hibernated", "observedGeneration": 2}))
    assert call("hibernate", "shop", "--wait").output == "postgresqlcluster/shop hibernated\n"


def test_kubectl_finds_plugin_by_name() -> None:
    project = tomllib.loads((OPERATOR / "pyproject.toml").read_text())
    entry = EntryPoint("kubectl-steersman", project["project"]["scripts"]["kubectl-steersman"], "console_scripts")
    assert callable(entry.load())


def test_commands_all_have_an_example() -> None:
    listed = call("--help").output.partition("Commands:")[2].split("\n")
    commands = [line.split()[0] for line in listed if line.startswith("  ") and not line.startswith("   ")]
    assert len(commands) == 28
    for command in commands:
        assert f"Example: kubectl steersman {command}" in call(command, "--help").output
