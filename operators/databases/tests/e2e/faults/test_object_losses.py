"""What a cluster of three loses, and how it comes back: nothing that was acknowledged is gone afterwards."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, WriteLog, writing
from database_support.e2e.engines import EACH_ENGINE, ON_MYSQL, ON_POSTGRESQL
from database_support.e2e.field_watch import FOLLOWS, endpoints
from database_support.e2e.leader_watch import watching_leader
from database_support.nodes.served_certificates import served_certificates
from devcluster import layout
from devcluster.errors import CommandFailed

pytestmark = pytest.mark.xdist_group("cluster-losses")

Record = Callable[[str, object], None]
HEALED_WITHIN = 30.0
SPOILT = "spoilt"
"""What no key of a Secret should hold."""


@pytest.fixture(autouse=True)
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


def judge(seen: WriteLog, record: Record, what: str) -> None:
    """Writes go on, and none is lost."""
    seen.wait_for_writes(time.time())
    record(f"{what}: longest gap in writes, in seconds", round(seen.longest_gap, 1))
    assert seen.lost_rows() == 0


@contextmanager
def no_pods(three: ClusterUnderTest) -> Generator[None]:
    """Who is deleted stays away until he is missed."""
    place = three.namespace_client
    place.kubectl("create", "quota", "no-pods", "--hard=pods=0")
    try:
        three.until("it counts", lambda: place.get("quota", "no-pods").get("status", {}).get("hard"), 15)
        yield
    finally:
        place.kubectl("delete", "quota", "no-pods")


@EACH_ENGINE
def test_replica_pod_lost_is_recreated(three: ClusterUnderTest, record_property: Record) -> None:
    place, lost = three.namespace_client, three.replicas[0]
    with writing(three, "shop-app") as seen, place.expecting_events(three.name, ("InstanceNotReady", lost)):
        with no_pods(three):
            place.kubectl("delete", "pod", f"{lost}-0", "--force", "--grace-period=0", "--wait=false")
            said = three.wait_reason("PodRejected")["message"]
            assert f"pod creation for {lost} was rejected: " in said and "exceeded quota: no-pods" in said
            assert not three.ready(3)
        three.wait_ready()
        judge(seen, record_property, "replica's pod")


@EACH_ENGINE
def test_primary_pod_lost_fails_over(three: ClusterUnderTest, record_property: Record) -> None:
    """It stays away, or it might be back before the others have missed it, and lead on."""
    place, lost = three.namespace_client, three.primary

    def is_another(pod: str) -> bool:
        return pod not in ("", f"{lost}-0")

    with (
        writing(three, "shop-app") as seen,
        watching_leader(three, three.replicas[0]) as members,
        endpoints(place, f"{three.name}-rw") as rw,
    ):
        with no_pods(three), place.expecting_events(three.name, ("Failover", " took over")):
            place.kubectl("delete", "pod", f"{lost}-0", "--force", "--grace-period=0", "--wait=false")
            since = members.wait_for("another leads", is_another)
            follows = rw.wait_for("-rw leads to another", is_another) - since
            record_property("seconds until -rw leads to it", round(follows, 2))
            assert follows <= FOLLOWS
            three.until("the operator says so", lambda: three.primary not in ("", lost), 90)
            three.until("-rw leads to it", lambda: three.endpoints() == [f"{three.primary}-0"], 30)
            seen.wait_for_writes(time.time())
            assert f"pod creation for {lost} was rejected: " in three.wait_reason("PodRejected")["message"]
            assert three.status["readyInstances"] == 2 and not three.ready(2), "two of three are not all"
        three.wait_ready()
        judge(seen, record_property, "primary's pod")
    assert any(said.startswith(f"{three.primary} took over") for said in place.events(three.name, "Failover"))
    assert three.primary != lost and lost in three.replicas


@EACH_ENGINE
def test_replica_volume_lost_is_replaced(three: ClusterUnderTest) -> None:
    """As the how-to has it: the claim, then the pod."""
    lost, former = three.replicas[0], three.primary

    def replaced() -> bool:
        members = {m["name"] for m in three.status["members"]}
        return lost not in members and len(members) == 3 and three.ready(3)

    with three.namespace_client.expecting_events(
        three.name, ("InstanceReplaced", f"replacing instance {lost}: its volume is lost")
    ):
        three.namespace_client.kubectl("delete", "pvc", f"data-{lost}", "--wait=false")
        three.namespace_client.kubectl("delete", "pod", f"{lost}-0", "--wait=false")
        three.until("another takes its place", replaced, 300)
    assert three.primary == former
    three.until("the claim is gone", lambda: not three.namespace_client.get("pvc", f"data-{lost}"), 60)


@EACH_ENGINE
def test_administrator_secret_lost_or_changed_is_restored(three: ClusterUnderTest) -> None:
    """What the Secret says opens the servers, whatever the operator itself comes in by."""
    place, name = three.namespace_client, f"{three.name}-admin"
    former = place.secret(name)["password"]

    def opens(password: str) -> bool:
        who = {"user": place.secret(name)["username"], "password": password, "dbname": three.engine.administrative}
        return is_let_in(three, {**place.secret("shop-app"), **who})

    assert opens(former)
    with place.expecting_events(three.name, ("SecretRestored", f"recreated the deleted Secret {name}")):
        place.kubectl("delete", "secret", name)
        three.until("it is back", lambda: place.secret(name).get("password", former) != former, HEALED_WITHIN)
    three.until("it opens", lambda: opens(place.secret(name)["password"]), 30)
    assert not opens(former)
    place.patch("secret", name, {"stringData": {"password": "chosen-by-hand"}})
    three.until("it opens", lambda: opens("chosen-by-hand"), 30)


@EACH_ENGINE
def test_primary_volume_lost_fails_over(three: ClusterUnderTest) -> None:
    """It hands over while it serves."""
    lost, failovers = three.primary, three.namespace_client.events(three.name, "Failover")
    told = (
        ("InstanceReplaced", f"replacing instance {lost}: its volume is lost"),
        ("VolumeLost", f"the volume of {lost} is lost or being deleted"),
    )
    with writing(three, "shop-app") as seen, three.namespace_client.expecting_events(three.name, *told):
        three.namespace_client.kubectl("delete", "pvc", f"data-{lost}", "--wait=false")
        three.until("another leads", lambda: three.primary not in ("", lost), 90)
        three.until("it is gone", lambda: lost not in three.nodes() and len(three.nodes()) == 3, 200)
        three.wait_ready()
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
    three.until("the claim is gone", lambda: not three.namespace_client.get("pvc", f"data-{lost}"), 60)
    three.wait_reason("SizeMatches", "VolumesResized")
    assert three.namespace_client.events(three.name, "Failover") == failovers


def is_let_in(three: ClusterUnderTest, login: Mapping[str, str]) -> bool:
    """Whether what a Secret says opens the cluster for its user."""
    try:
        said = three.namespace_client.log_in(f"{three.primary}-0", login, three.engine.current_user, login["type"])
    except CommandFailed as refusal:
        assert any(words in str(refusal) for words in ("password authentication failed", "Access denied"))
        return False
    assert said == login["user"]
    return True


@pytest.fixture
def clerk(three: ClusterUnderTest) -> Generator[dict[str, str]]:
    """What the Secret of a user says."""
    place, grants = three.namespace_client, [{"database": "shop", "privileges": ["ALL"]}]
    place.apply("DatabaseUser", "clerk", three.reference(user="clerk", grants=grants))
    place.wait_current("databaseuser", "clerk", "ProvisionSucceeded")
    login = place.secret("clerk-user")
    assert is_let_in(three, login)
    yield login
    place.kubectl("delete", "databaseuser", "clerk", "--timeout=60s", seconds=70)


@EACH_ENGINE
def test_user_secret_lost_is_recreated(three: ClusterUnderTest, clerk: dict[str, str]) -> None:
    """Nobody else knew its password: another one is set."""
    place = three.namespace_client

    def is_back() -> bool:
        login = place.secret("clerk-user")
        return login.get("password", clerk["password"]) != clerk["password"] and is_let_in(three, login)

    with place.expecting_events("clerk", ("Created", "created Secret clerk-user")):
        place.kubectl("delete", "secret", "clerk-user")
        three.until("it is back, and opens", is_back, HEALED_WITHIN)
    assert not is_let_in(three, clerk)


@EACH_ENGINE
def test_user_secret_modified_is_completed(three: ClusterUnderTest, clerk: dict[str, str]) -> None:
    """It says again what is so, but for the password: who chose one has it set."""
    place, told = three.namespace_client, ("SecretRestored", "completed Secret clerk-user")
    wrong = {"host": "elsewhere.invalid", "user": "somebody"}
    for harm in (*({key: value} for key, value in wrong.items()), wrong):
        with place.expecting_events("clerk", told):
            place.patch("secret", "clerk-user", {"stringData": harm})
            three.until("it is as it was", lambda: place.secret("clerk-user") == clerk, HEALED_WITHIN)
    assert is_let_in(three, clerk)

    def is_taken() -> bool:
        login = place.secret("clerk-user")
        same = all(login[key] == clerk[key] for key in wrong)
        return same and "chosen%20by%20hand" in login["uri"] and is_let_in(three, login)

    with place.expecting_events("clerk", told, ("PasswordReset", "reset the password of user clerk")):
        place.patch("secret", "clerk-user", {"stringData": {**wrong, "password": "chosen by hand"}})
        three.until("it opens with the password that was chosen", is_taken, HEALED_WITHIN)
    assert not is_let_in(three, clerk)


@EACH_ENGINE
def test_user_secret_with_wrong_username_is_reported(three: ClusterUnderTest, clerk: dict[str, str]) -> None:
    """Nobody knows whose password it has: another one is set, as for a Secret that is lost."""
    place = three.namespace_client

    def is_back() -> bool:
        login = place.secret("clerk-user")
        return login["username"] == "clerk" and login["password"] != clerk["password"] and is_let_in(three, login)

    told = ("SecretRestored", "completed Secret clerk-user, with a new password")
    with place.expecting_events("clerk", "PasswordReset", told):
        place.patch("secret", "clerk-user", {"stringData": {"username": "somebody"}})
        three.until("it is the user's, and opens", is_back, HEALED_WITHIN)
    assert not is_let_in(three, clerk)


def told_of(secret: str, harm: str) -> tuple[str, str]:
    """Reason and words of the Event for a Secret of the operator's with certificates that is made anew."""
    if harm == "deleted":
        return "SecretRestored", f"recreated the deleted Secret {secret}"
    if secret.endswith("-ca"):
        return "CARotated", f"Secret {secret}: "
    return "CertificateRenewed", f"Secret {secret} has a new certificate"


@EACH_ENGINE
@pytest.mark.parametrize(
    ("suffix", "part"), [("tls", "tls.crt"), ("operator", "tls.crt"), ("peer", "tls.crt"), ("ca", "server.crt")]
)
@pytest.mark.parametrize("harm", ["deleted", "spoilt"])
def test_generated_secret_lost_is_recreated(three: ClusterUnderTest, suffix: str, part: str, harm: str) -> None:
    """That of the authorities too: who was signed by the former is trusted for as long as that is valid."""
    place, name, pods = three.namespace_client, f"orders-{suffix}", three.pods()
    before = place.secret(name)
    with writing(three, "shop-app") as seen:
        with place.expecting_events("orders", told_of(name, harm)):
            if harm == "deleted":
                place.kubectl("delete", "secret", name)
            else:
                nothing = base64.b64encode(SPOILT.encode()).decode()
                place.patch("secret", name, {"data": dict.fromkeys(before, nothing)})
            former = (before[part], SPOILT)
            three.until("it is back", lambda: place.secret(name).get(part, SPOILT) not in former, HEALED_WITHIN)
        assert before.keys() <= place.secret(name).keys() and SPOILT not in place.secret(name).values()
        three.wait_reason("Valid", "CertificatesValid", 240)
        three.wait_ready()
        seen.wait_for_writes(time.time())
        assert seen.errors == []
    assert three.pods() == pods
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
        assert seen.errors == [], "who comes now verifies the servers as well"


@EACH_ENGINE
def test_application_secret_lost_is_recreated(three: ClusterUnderTest) -> None:
    with three.namespace_client.expecting_events("shop", ("Created", "created Secret shop-app")):
        three.namespace_client.kubectl("delete", "secret", "shop-app")
        three.until("it is back", lambda: three.namespace_client.secret("shop-app").get("password"), HEALED_WITHIN)
    three.namespace_client.wait_reason("database", "shop", "DatabaseReady")
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())


@EACH_ENGINE
def test_services_lost_or_changed_are_restored(three: ClusterUnderTest) -> None:
    place, name, written = three.namespace_client, three.name, f"{three.name}-rw-ipv{layout.IP_FAMILY}"
    # And the role that each does not lead to, or not alone.
    suffixes = {"rw": "replica", "ro": "primary", "r": "replica", "reports": "primary"}
    three.apply(services={"additional": [{"name": f"{name}-reports", "role": "ro"}]})

    def found() -> list[Any]:
        """All but their addresses: one that is made anew has others."""
        specs = [place.get("service", f"{name}-{suffix}").get("spec", {}) for suffix in suffixes]
        ways = [(spec.get("selector"), spec.get("ports")) for spec in specs]
        leads = [three.endpoints(suffix) for suffix in suffixes]
        return [ways, leads, place.get("endpointslice", written).get("endpoints")]

    three.until("all lead to instances", lambda: [len(leads) for leads in found()[1]] == [1, 2, 3, 2], 60)
    before = found()

    def comes_back(told: tuple[str, str], kind: str, what: str, change: Mapping[str, Any] | None = None) -> None:
        with place.expecting_events(name, told):
            if change is None:
                place.kubectl("delete", kind, what)
            else:
                place.patch(kind, what, change)
            three.until(f"{what} is as it was", lambda: found() == before, HEALED_WITHIN)

    for suffix, elsewhere in suffixes.items():
        service = f"{name}-{suffix}"
        comes_back(("Created", f"created Service {service}"), "service", service)
        for harm in ({"selector": {"databases.steersman.dev/role": elsewhere}}, {"ports": [{"port": 1}]}):
            comes_back(("Updated", f"updated Service {service}"), "service", service, {"spec": harm})
    told = f"Service {name}-rw routes to {three.primary}-0"
    comes_back(("DriftReverted", told), "endpointslice", written, {"endpoints": []})
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
    three.apply(services=None)
    three.until("it is as it was declared before", lambda: not place.get("service", f"{name}-reports"), 60)


@ON_POSTGRESQL
@pytest.mark.parametrize("synchronous", ["Quorum", "Disabled"])
def test_all_certificates_lost_cluster_recovers(
    three: ClusterUnderTest, record_property: Record, synchronous: str
) -> None:
    """Nobody knows the others any more, and who could tell them is not known either: pods are made anew."""
    postgresql = three.spec["postgresql"]
    three.apply(
        pooler={"replicas": 1, "readOnly": False}, postgresql=postgresql | {"synchronous": {"mode": synchronous}}
    )
    three.wait_ready()
    rollout = ("rollout", "status", f"deployment/{three.name}-pooler-rw", "--timeout=120s")
    three.namespace_client.kubectl(*rollout, seconds=130)
    pooler = f"{three.name}-pooler-rw.{three.namespace_client.namespace}.svc"
    before, poolers = three.pods(), three.namespace_client.names("pods") - {f"pod/{name}" for name in three.pods()}
    with writing(three, "shop-app") as seen, writing(three, "shop-app", pooler, table="pooled") as pooled:
        secrets = [f"{three.name}-{suffix}" for suffix in ("ca", "tls", "peer", "operator", "pooler")]
        three.namespace_client.kubectl("delete", "secret", *secrets)

        def renewed() -> bool:
            pods = three.pods()
            return len(pods) == 3 and all(pods[name] != pod for name, pod in before.items())

        three.until("all pods are made anew", renewed, 400)
        three.wait_ready()
        for each in (seen, pooled):
            each.wait_for_writes(time.time())
            record_property(f"{each.table}: longest gap in writes, in seconds", round(each.longest_gap, 1))
            assert each.lost_rows() == 0
    assert not poolers & three.namespace_client.names("pods")
    # The operator reaches them.
    three.namespace_client.kubectl("delete", "secret", "shop-app")
    three.until(
        "it has a new password set", lambda: three.namespace_client.secret("shop-app").get("password"), HEALED_WITHIN
    )
    three.namespace_client.wait_reason("database", "shop", "DatabaseReady")
    three.apply(pooler=None, postgresql=postgresql)


@ON_MYSQL
def test_all_group_certificates_lost_group_recovers(three: ClusterUnderTest, record_property: Record) -> None:
    """Its members read the next by themselves."""
    before, began = served_certificates(three), time.time()
    pods = three.pods()
    with writing(three, "shop-app") as seen:
        secrets = [f"{three.name}-{suffix}" for suffix in ("ca", "tls", "peer", "operator")]
        three.namespace_client.kubectl("delete", "secret", *secrets)
        three.until("all show the next", lambda: served_certificates(three).isdisjoint(before), 300)
        three.wait_reason("Valid", "CertificatesValid", 300)
        three.wait_ready()
        assert three.pods() == pods, "nobody was restarted"
        record_property("seconds until all is well", round(time.time() - began))
        seen.wait_for_writes(time.time())
        assert seen.lost_rows() == 0
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())
        assert seen.errors == [], "who comes now verifies the servers as well"
