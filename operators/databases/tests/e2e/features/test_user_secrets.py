"""Secrets that a person gave or must give back are lost: what they opened goes on, and what is missing is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL, EngineCommands
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("given-secrets"), pytest.mark.timeout(900), EACH_ENGINE]

HEALED_WITHIN = 30.0
OWNER = "owner"
LOGIN = {"username": "keeper", "password": "kept for itself"}
UNFIT = f"Secret {OWNER} needs username: keeper, and a password"
REFUSED = "password authentication failed|Access denied"


def give(place: NamespaceClient, name: str, entries: Mapping[str, str]) -> None:
    place.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries})


@pytest.fixture(scope="module")
def declared(shared: NamespaceClient, of: EngineCommands) -> ClusterUnderTest:
    """A cluster of one that is not applied yet: a Secret says the password of its first database's owner."""
    initdb = {"database": "shop", "owner": "keeper", "secret": {"name": OWNER}}
    spec = {**of.small, "instances": 1, "bootstrap": {"initdb": initdb}}
    if of is POSTGRESQL:
        spec["postgresql"] = {"enableSuperuserAccess": True}
    return ClusterUnderTest(shared, spec=spec, engine=of)


@pytest.fixture
def one(declared: ClusterUnderTest) -> ClusterUnderTest:
    """It is well before each test."""
    give(declared.namespace_client, OWNER, LOGIN)
    declared.apply()
    declared.wait_ready()
    return declared


def who(one: ClusterUnderTest, login: Mapping[str, str]) -> str:
    """Whom a server takes for who has nothing but the entries of a Secret. Raises CommandFailed."""
    return one.namespace_client.log_in(f"{one.primary}-0", login, one.engine.current_user, one.engine.settings)


def test_cluster_waits_for_owner_password_secret(declared: ClusterUnderTest) -> None:
    with declared.namespace_client.expecting_events(declared.name, ("OwnerSecretInvalid", UNFIT)):
        declared.apply()
        declared.wait_reason("OwnerSecretInvalid")
    assert not declared.namespace_client.names("pvc"), "no data are made that nobody could open"
    give(declared.namespace_client, OWNER, LOGIN)
    declared.wait_ready()
    assert who(declared, declared.namespace_client.secret("orders-app")) == "keeper"


def test_owner_password_changed_is_reported(one: ClusterUnderTest) -> None:
    kept = one.namespace_client.secret("orders-app")
    with one.namespace_client.expecting_events(one.name, ("OwnerSecretInvalid", UNFIT)):
        one.namespace_client.patch("secret", OWNER, {"stringData": {"username": "somebody"}})
        one.wait_reason("OwnerSecretInvalid", "BootstrapDatabaseReady")
    one.wait_degraded(f"BootstrapDatabaseReady: {UNFIT}")
    assert one.namespace_client.secret("orders-app") == kept and who(one, kept) == "keeper", (
        "The previous password is still valid"
    )
    one.namespace_client.patch("secret", OWNER, {"stringData": LOGIN})
    one.wait_reason("DatabaseReady", "BootstrapDatabaseReady")
    one.wait_ready()


def test_owner_password_lost_with_generated_secrets_is_reported(one: ClusterUnderTest) -> None:
    """What was made of it suffices; without that nobody knows which it is to be."""
    place, kept = one.namespace_client, one.namespace_client.secret("orders-app")
    with place.expecting_events(one.name, ("OwnerSecretInvalid", UNFIT)):
        place.kubectl("delete", "secret", OWNER)
        place.kubectl("delete", "secret", "orders-app")
        one.wait_reason("OwnerSecretInvalid")
    assert not place.secret("orders-app"), "no password is thought of in its place"
    assert who(one, kept) == "keeper", "who is there goes on"
    with place.expecting_events(one.name, ("SecretRestored", "recreated the deleted Secret orders-app")):
        give(place, OWNER, {**LOGIN, "password": "another one"})
        one.until("it is back", lambda: place.secret("orders-app").get("password") == "another one", 60)
    one.wait_ready()
    one.until("it opens", lambda: who(one, place.secret("orders-app")) == "keeper", HEALED_WITHIN)
    with pytest.raises(CommandFailed, match=REFUSED):
        who(one, kept)


def test_user_password_secret_lost_is_reported(one: ClusterUnderTest) -> None:
    """Who has it goes on, and another one that is given is set."""
    place, grants = one.namespace_client, [{"database": "shop", "privileges": ["ALL"]}]
    give(place, "chosen", {"word": "chosen by hand"})
    chosen = {"name": "chosen", "key": "word"}
    place.apply("DatabaseUser", "clerk", one.reference(user="clerk", password=chosen, grants=grants))
    place.wait_current("databaseuser", "clerk", "ProvisionSucceeded")
    kept = place.secret("clerk-user")
    assert who(one, kept) == "clerk"

    with place.expecting_events(
        "clerk", ("ProvisionFailed", "Secret chosen with the password does not exist. Create it")
    ):
        place.kubectl("delete", "secret", "chosen")
        place.wait_reason("databaseuser", "clerk", "ProvisionFailed")
    assert place.secret("clerk-user") == kept and who(one, kept) == "clerk"

    def is_another() -> bool:
        login = place.secret("clerk-user")
        return login["password"] == "chosen anew" and who(one, login) == "clerk"

    with place.expecting_events("clerk", "ProvisionSucceeded"):
        give(place, "chosen", {"word": "chosen anew"})
        one.until("another one opens", is_another, 60)
        place.wait_reason("databaseuser", "clerk", "ProvisionSucceeded")
    with pytest.raises(CommandFailed, match=REFUSED):
        who(one, kept)
    place.kubectl("delete", "databaseuser", "clerk", "--timeout=60s", seconds=70)
    place.kubectl("delete", "secret", "chosen")


def retain(one: ClusterUnderTest) -> dict[str, Any]:
    """Leaves nothing of it but data, and what opens them. Gives the administrator's Secret."""
    one.apply(deletionPolicy="Retain")
    one.sql("DROP TABLE IF EXISTS kept; CREATE TABLE kept (n int PRIMARY KEY); INSERT INTO kept VALUES (7)", "shop")
    one.delete()
    one.until("the pods are gone", lambda: not one.nodes(), 120)
    return one.namespace_client.get("secret", "orders-admin")


def administrator(one: ClusterUnderTest) -> dict[str, str]:
    """How the administrator logs in."""
    entries, login = one.namespace_client.secret("orders-admin"), one.namespace_client.secret("orders-app")
    named = {"user": entries["username"], "dbname": one.engine.administrative}
    return {**login, **named, "password": entries["password"]}


def test_retained_administrator_secret_is_recreated(one: ClusterUnderTest) -> None:
    """The operator comes in by certificate."""
    former = administrator(one)
    retain(one)
    one.namespace_client.kubectl("delete", "secret", "orders-admin")
    with one.namespace_client.expecting_events(
        one.name, ("SecretRestored", "recreated the deleted Secret orders-admin")
    ):
        one.apply(deletionPolicy="Delete")
        one.wait_ready()
    assert one.sql("SELECT n FROM kept", "shop") == "7"
    one.until("it opens", lambda: who(one, administrator(one)) == former["user"], HEALED_WITHIN)
    with pytest.raises(CommandFailed, match=REFUSED):
        who(one, former)


def test_retained_data_of_unknown_cluster_waits_for_secret(one: ClusterUnderTest) -> None:
    """As volumes do that come out of a copy, without the rest."""
    place, former = one.namespace_client, administrator(one)
    lost = retain(one)
    claims = {c["metadata"]["name"]: c["metadata"]["uid"] for c in place.all("pvc")}
    store = [name for name in place.names("configmaps") if name.startswith(f"configmap/{one.name}-")]
    assert store, "what says who made the data"
    place.kubectl("delete", "secret/orders-admin", *store)
    with place.expecting_events(one.name, ("AdministratorSecretMissing", "Secret orders-admin ")):
        one.apply(deletionPolicy="Delete")
        said = one.wait_reason("AdministratorSecretMissing")["message"]
    assert "PVC data-orders-0" in said and "Restore the Secret" in said
    assert one.status["phase"] == "Failed" and not one.nodes() and not place.secret("orders-admin")

    metadata = {key: lost["metadata"][key] for key in ("name", "labels")}
    place.create({**lost, "metadata": metadata})
    one.wait_ready()
    assert {c["metadata"]["name"]: c["metadata"]["uid"] for c in place.all("pvc")} == claims
    assert one.sql("SELECT n FROM kept", "shop") == "7"
    assert administrator(one) == former and who(one, former) == former["user"]
