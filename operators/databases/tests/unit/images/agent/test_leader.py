"""Who is written down as leader, where there are two groups: one was founded while the other was not seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from steersman_agent import kubernetes
from steersman_agent.group import group_config
from steersman_agent.group.decision import GroupState
from steersman_agent.group.group_status import GroupPeer, LocalServer, ServerStatus
from steersman_agent.group.leader import GroupEpoch, LeaderPublisher
from steersman_agent.log import DeduplicatedLog
from steersman_agent.server.process import ServerPaths
from steersman_instance.gtids import GtidSet
from steersman_pod.api_client import ApiRequest, ApiResponse
from steersman_pod.rw_endpoints import PodIdentity

GROUP = kubernetes.object_path("configmaps", "default", "orders-group")
RUNS_AS = "7b1f4a52-5a3e-4d0e-9f4c-0f1f3f1c7a11"
SLICE = kubernetes.object_path("endpointslices", "default", "orders-rw", "apis/discovery.k8s.io/v1")
OTHERS = kubernetes.object_path("endpointslices", "default", "orders.entry", "apis/discovery.k8s.io/v1")
OWNER = {
    "apiVersion": "databases.steersman.dev/v1alpha1",
    "kind": "MySQLCluster",
    "name": "orders",
    "uid": "uid-orders",
    "controller": True,
}


class Objects(kubernetes.KubernetesApi):
    """A ConfigMap and a slice that everybody reads and writes."""

    def __init__(self, group: Mapping[str, Any]) -> None:
        self.version = 1
        self.objects: dict[str, dict[str, Any]] = {
            GROUP: {"metadata": {"annotations": {group_config.GROUP: json.dumps(group)}, "resourceVersion": "1"}},
            SLICE: {
                "metadata": {"ownerReferences": [OWNER], "annotations": {}, "resourceVersion": "1"},
                "addressType": "IPv4",
                "endpoints": [],
            },
        }

    def send(self, request: ApiRequest) -> ApiResponse:
        found = self.objects.get(request.path)
        if found is None:
            return ApiResponse(404, {})
        if request.body is not None:
            metadata = request.body["metadata"]
            if metadata["resourceVersion"] != found["metadata"]["resourceVersion"]:
                return ApiResponse(409, {"message": "it has been modified"})
            self.version += 1
            annotations = {**found["metadata"]["annotations"], **metadata["annotations"]}
            changed = {"annotations": annotations, "resourceVersion": str(self.version)}
            merged = {**found["metadata"], **changed}
            found = self.objects[request.path] = {**found, **request.body, "metadata": merged}
        return ApiResponse(200, found)

    @property
    def group(self) -> Mapping[str, Any]:
        return json.loads(self.objects[GROUP]["metadata"]["annotations"][group_config.GROUP])

    @property
    def serves(self) -> list[str]:
        return [one["targetRef"]["name"] for one in self.objects[SLICE]["endpoints"]]


class Primary(LocalServer):
    """The server of an instance, which is the primary of its group."""

    def __init__(self, instance: int, view: str) -> None:
        super().__init__("")
        me = GroupPeer(uuid=f"server-{instance}", host="", port=0, state="ONLINE", primary=True)
        self.found = ServerStatus(
            uuid=me.uuid,
            version="9.7.4",
            state="ONLINE",
            view=view,
            members=[me],
            executed=GtidSet(),
            apply_queue=0,
            applied=0,
        )

    def query_status(self) -> ServerStatus:
        return self.found

    def value_of(self, name: str) -> str:
        assert name == "group_replication_group_name"
        return RUNS_AS


@dataclass
class Agent:
    """It reads the store, and leads by what it has read."""

    leader: LeaderPublisher
    objects: Objects

    def lead(self, look: ServerStatus) -> None:
        config_map = self.objects.objects.get(GROUP)
        self.leader.publish(
            look, GroupState() if config_map is None else group_config.read_group_config(config_map).state
        )


class World:
    """The objects, and agents that lead."""

    def __init__(self, directory: Path, **group: Any) -> None:
        self.objects = Objects(group)
        self.directory, self.slices = directory, directory / "slices"
        self.slices.write_text("orders-rw\n")

    def primary(self, instance: int, view: str, epoch: int) -> tuple[Agent, ServerStatus]:
        pod = PodIdentity(f"orders-{instance}-0", "default", f"uid-{instance}", "node", (f"10.0.0.{instance}",))
        local, place = Primary(instance, view), ServerPaths(instance=instance, slices=self.slices)
        joined = GroupEpoch(self.directory / f"epoch-{instance}")
        joined.enter(epoch)
        leader = LeaderPublisher(pod, "orders", place, local, self.objects, GROUP, joined, DeduplicatedLog())
        return Agent(leader, self.objects), local.found


def test_superseded_group_primary_loses_rw(tmp_path: Path) -> None:
    world = World(tmp_path, epoch=1, leader=0, uuid="server-0", view="16:3")
    former, seen = world.primary(0, "16:3", epoch=1)
    former.lead(seen)
    assert world.objects.serves == ["orders-0-0"]
    # Somebody consents that instance 2 founds another, which writes itself down before it serves.
    written = {"epoch": 2, "leader": 2, "uuid": "server-2", "view": ""}
    world.objects.objects[GROUP]["metadata"]["annotations"][group_config.GROUP] = json.dumps(written)
    anew, seen_anew = world.primary(2, "17:1", epoch=2)
    again, _ = world.primary(0, "16:3", epoch=1)
    again.lead(seen)
    assert world.objects.group == written, "not in the time before the founder is in its group either"
    anew.lead(seen_anew)
    world.primary(0, "16:4", epoch=1)[0].lead(seen)
    assert world.objects.group == {**written, "view": "17:1"}
    assert world.objects.serves == ["orders-2-0"]


def test_superseding_group_is_distinguished_by_view(tmp_path: Path) -> None:
    world = World(tmp_path, epoch=2, leader=2, uuid="server-2", view="17:1")
    misled, seen = world.primary(1, "16:7", epoch=2)
    misled.lead(seen)
    assert world.objects.group["leader"] == 2 and not world.objects.serves


def test_foreign_slice_is_kept_and_own_filled(tmp_path: Path) -> None:
    world = World(tmp_path, epoch=1, leader=0, uuid="server-0", view="16:3")
    world.slices.write_text("orders.entry\norders-rw\n")
    of_another: dict[str, Any] = {
        "ownerReferences": [{**OWNER, "name": "other"}],
        "annotations": {},
        "resourceVersion": "1",
    }
    theirs: dict[str, Any] = {"metadata": of_another, "addressType": "IPv4", "endpoints": []}
    world.objects.objects[OTHERS] = theirs
    leader, seen = world.primary(0, "16:3", epoch=1)
    leader.lead(seen)
    assert world.objects.objects[OTHERS] == theirs
    assert world.objects.serves == ["orders-0-0"]


@pytest.mark.parametrize("known", [{}, {"epoch": 1, "leader": 0, "uuid": "server-0", "view": ""}])
def test_unknown_epoch_falls_back_to_joined(tmp_path: Path, known: dict[str, Any]) -> None:
    world = World(tmp_path, **known)
    leader, seen = world.primary(1, "17:2", epoch=3)
    leader.lead(seen)
    assert (world.objects.group["epoch"], world.objects.group["leader"]) == (3, 1)
    assert world.objects.serves == ["orders-1-0"]


def test_next_leader_of_same_group_is_recorded(tmp_path: Path) -> None:
    world = World(tmp_path, epoch=1, leader=0, uuid="server-0", view="16:3")
    successor, seen = world.primary(1, "16:4", epoch=1)
    successor.lead(seen)
    former, seen = world.primary(0, "16:3", epoch=1)
    former.lead(seen)
    assert world.objects.group == {"epoch": 1, "leader": 1, "uuid": "server-1", "view": "16:4"}
    assert world.objects.serves == ["orders-1-0"]


def test_deleted_group_config_is_rewritten(tmp_path: Path) -> None:
    world = World(tmp_path, epoch=3, leader=0, uuid="server-0", view="16:3", members=[0, 1])
    leader, seen = world.primary(0, "16:3", epoch=3)
    leader.lead(seen)
    del world.objects.objects[GROUP]
    leader.lead(seen)
    # The operator makes it anew: with another name, and knowing nothing of who led.
    annotations = {group_config.GROUP_NAME: "of-another-group", group_config.INSTANCES: "0,1,2"}
    metadata = {"annotations": annotations, "resourceVersion": "900"}
    world.objects.objects[GROUP] = {"metadata": metadata}
    world.objects.version = 900
    leader.lead(seen)
    # Nobody knows who was a member, so all may have been.
    assert world.objects.group == {"epoch": 3, "leader": 0, "uuid": "server-0", "view": "16:3", "members": [0, 1, 2]}
    assert world.objects.objects[GROUP]["metadata"]["annotations"][group_config.GROUP_NAME] == RUNS_AS
    version = world.objects.version
    leader.lead(seen)
    assert world.objects.version == version, "once is enough"


def test_older_group_config_does_not_supersede(tmp_path: Path) -> None:
    """It was deleted, and who is in a group that was given up was the first to write it anew."""
    world = World(tmp_path, epoch=1, leader=0, uuid="server-0", view="16:3")
    anew, seen = world.primary(2, "17:1", epoch=2)
    anew.lead(seen)
    assert (world.objects.group["epoch"], world.objects.group["leader"]) == (2, 2)
    world.primary(0, "16:4", epoch=1)[0].lead(seen)
    assert world.objects.group["leader"] == 2


def test_epoch_survives_agent_restart(tmp_path: Path) -> None:
    file = tmp_path / "epoch"
    assert GroupEpoch(file).epoch == 0
    GroupEpoch(file).enter(7)
    assert GroupEpoch(file).epoch == 7
    file.write_text("")
    assert GroupEpoch(file).epoch == 0
