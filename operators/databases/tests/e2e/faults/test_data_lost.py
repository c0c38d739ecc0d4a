"""All volumes of a cluster are lost: no server starts with empty ones before a user accepts it."""

from __future__ import annotations

import json

import pytest

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, EngineCommands
from devcluster.target import Target

CONTROLLED = (
    "statefulsets,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies,endpointslices"
)
WITHOUT_CONTROLLER = "pvc,secrets"


def served(place: NamespaceClient, of: EngineCommands, instances: int) -> ClusterUnderTest:
    """Create a cluster, and write a row."""
    made = ClusterUnderTest(place, spec=dict(of.small), engine=of)
    made.apply(instances=instances)
    place.apply("Database", "shop", made.reference())
    made.wait_ready()
    place.wait_reason("database", "shop", "DatabaseReady")
    made.sql(f"{of.create_table('kept', 'shop')}; INSERT INTO kept (number) VALUES (1)", "shop")
    made.until("the identity is recorded", lambda: made.status.get("dataIdentity"), 60)
    return made


def passwords(place: NamespaceClient) -> dict[str, str]:
    """Return the passwords that applications and administrators use."""
    return {name: place.secret(name).get("password", "") for name in ("orders-admin", "shop-app")}


def pvcs(place: NamespaceClient) -> set[str]:
    """Return the names of all PVCs."""
    return {pvc["metadata"]["name"] for pvc in place.all("pvc")}


def lose_volumes(made: ClusterUnderTest) -> None:
    """Delete all PVCs, then all pods that use them."""
    place = made.namespace_client
    lost = pvcs(place)
    place.kubectl("delete", "pvc", *lost, "--wait=false")
    place.kubectl("delete", "pods", made.selector, "--wait=false")
    made.until("the volumes are lost", lambda: not lost & pvcs(place), 240)


def accept_loss(made: ClusterUnderTest, identity: str) -> None:
    """Accept the loss, and check that the servers have no data and the previous passwords."""
    place, before = made.namespace_client, passwords(made.namespace_client)
    made.annotate("accept-data-loss", identity)
    made.wait_ready(seconds=400)
    made.until("it has another identity", lambda: made.status["dataIdentity"] != identity, 60)
    place.wait_current("database", "shop", "DatabaseReady")
    assert passwords(place) == before
    login = {**place.secret("shop-app")}
    statement = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'kept'"
    assert place.log_in(f"{made.primary}-0", login, statement, login["type"]) == "0"


@EACH_ENGINE
def test_only_volume_lost_needs_consent(place: NamespaceClient, of: EngineCommands) -> None:
    made = served(place, of, 1)
    before, identity = passwords(place), made.status["dataIdentity"]
    with place.expecting_events("orders", "DataLost"):
        lose_volumes(made)
        said = made.wait_reason("DataLost", seconds=120)["message"]
    assert "PVC data-orders-0 is missing" in said and identity in said
    assert made.status["phase"] == "Failed"
    e2e_operator.kill(place.target)
    made.wait_reason("DataLost")
    assert pvcs(place) == set() and passwords(place) == before
    made.annotate("accept-data-loss", "true")
    made.until("it is refused", lambda: "which is true now" in made.wait_reason("DataLost")["message"], 60)
    accept_loss(made, identity)
    lose_volumes(made)
    made.wait_reason("DataLost", seconds=120)


@EACH_ENGINE
@pytest.mark.disruptive
def test_all_volumes_lost_need_consent(cluster: Target, place: NamespaceClient, of: EngineCommands) -> None:
    made = served(place, of, 3)
    before, identity = passwords(place), made.status["dataIdentity"]
    with e2e_operator.operator_stopped(cluster):
        lose_volumes(made)
    made.wait_reason("DataLost", seconds=180)
    assert pvcs(place) == set() and passwords(place) == before
    accept_loss(made, identity)


@EACH_ENGINE
def test_dedicated_cluster_reports_lost_volume(place: NamespaceClient, of: EngineCommands) -> None:
    alone = {"version": "17", "storageSize": "256Mi"} if of.settings == "postgresql" else {"version": "9.7"}
    place.apply("Database", "alone", {"engine": of.settings, **alone})
    place.wait_reason("database", "alone", "DatabaseReady", seconds=300)
    password = place.secret("alone-app")["password"]
    place.kubectl("delete", "pvc", "data-alone-0", "--wait=false")
    place.kubectl("delete", "pod", "alone-0-0", "--wait=false")
    said = place.wait_reason("database", "alone", "DataLost", seconds=180)["message"]
    assert "PVC data-alone-0 is missing" in said
    assert place.secret("alone-app")["password"] == password


@EACH_ENGINE
@pytest.mark.disruptive
def test_restored_objects_are_adopted(cluster: Target, place: NamespaceClient, of: EngineCommands) -> None:
    """Owner references and the cluster's object are lost, as in a namespace that Velero restores."""
    made = served(place, of, 3)
    pods, before = made.pods(), passwords(place)
    with e2e_operator.operator_stopped(cluster):
        place.kubectl("patch", made.kind, made.name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        orphan = json.dumps({"metadata": {"ownerReferences": None}})
        for name in place.names(f"{CONTROLLED},configmaps,{WITHOUT_CONTROLLER}"):
            place.kubectl("patch", name, "--type=merge", "-p", orphan)
        place.kubectl("delete", made.kind, made.name, "--cascade=orphan", "--timeout=60s", seconds=70)
    made.apply()
    said = made.wait_reason("NameConflict")["message"]
    assert "databases.steersman.dev/adopt" in said
    made.annotate("adopt", "true")
    made.wait_ready()
    uid = made.found["metadata"]["uid"]
    for kind in CONTROLLED.split(","):
        owners = [o for each in place.all(kind) for o in each["metadata"].get("ownerReferences") or ()]
        assert all(o["uid"] == uid for o in owners if o["kind"] == of.kind)
    assert made.pods() == pods
    assert passwords(place) == before
    made.sql("INSERT INTO kept (number) VALUES (2)", "shop")
