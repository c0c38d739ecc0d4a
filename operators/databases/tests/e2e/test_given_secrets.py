"""Secrets that a person gave or must give back are lost: what they opened goes on, and what is missing is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from database_support.cluster_engines import EACH, Engine
from database_support.cluster_under_test import ClusterUnderTest, Place
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("given-secrets"), pytest.mark.timeout(900), EACH]

HEALED_WITHIN = 30.0
OWNER = "owner"
LOGIN = {"username": "keeper", "password": "kept for itself"}
UNFIT = f"Secret {OWNER} needs username: keeper, and a password, for the owner"
REFUSED = "password authentication failed|Access denied"


def give(place: Place, name: str, entries: Mapping[str, str]) -> None:
    place.make({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": entries})


@pytest.fixture(scope="module")
def declared(shared: Place, of: Engine) -> ClusterUnderTest:
    """A cluster of one that is not applied yet: a Secret says the password of its first database's owner."""
    initdb = {"database": "shop", "owner": "keeper", "secret": {"name": OWNER}}
    spec = {**of.small, "instances": 1, "bootstrap": {"initdb": initdb}}
    return ClusterUnderTest(shared, spec=spec, engine=of)


@pytest.fixture
def one(declared: ClusterUnderTest) -> ClusterUnderTest:
    """It is well before each test."""
    give(declared.place, OWNER, LOGIN)
    declared.apply()
    declared.wait_ready()
    return declared


def who(one: ClusterUnderTest, login: Mapping[str, str]) -> str:
    """Whom a server takes for who has nothing but the entries of a Secret. Raises CommandFailed."""
    return one.place.log_in(f"{one.primary}-0", login, one.engine.who, one.engine.settings)


def test_a_cluster_waits_for_its_owners_password(declared: ClusterUnderTest) -> None:
    with declared.place.telling(declared.name, ("OwnerSecretInvalid", UNFIT)):
        declared.apply()
        declared.wait_reason("OwnerSecretInvalid")
    assert not declared.place.names("pvc"), "no data are made that nobody could open"
    give(declared.place, OWNER, LOGIN)
    declared.wait_ready()
    assert who(declared, declared.place.secret("orders-app")) == "keeper"


def test_the_owners_password_fits_no_more(one: ClusterUnderTest) -> None:
    kept = one.place.secret("orders-app")
    with one.place.telling(one.name, ("OwnerSecretInvalid", UNFIT)):
        one.place.patch("secret", OWNER, {"stringData": {"username": "somebody"}})
        one.wait_reason("OwnerSecretInvalid", "InitialDatabase")
    one.wait_degraded(f"InitialDatabase: {UNFIT}")
    assert one.place.secret("orders-app") == kept and who(one, kept) == "keeper", "the former one is in force"
    one.place.patch("secret", OWNER, {"stringData": LOGIN})
    one.wait_reason("DatabaseReady", "InitialDatabase")
    one.wait_ready()


def test_the_owners_password_is_lost_with_all_that_was_made_of_it(one: ClusterUnderTest) -> None:
    """What was made of it suffices; without that nobody knows which it is to be."""
    place, kept = one.place, one.place.secret("orders-app")
    with place.telling(one.name, ("OwnerSecretInvalid", UNFIT)):
        place.kubectl("delete", "secret", OWNER)
        place.kubectl("delete", "secret", "orders-app")
        one.wait_reason("OwnerSecretInvalid")
    assert not place.secret("orders-app"), "no password is thought of in its place"
    assert who(one, kept) == "keeper", "who is there goes on"
    with place.telling(one.name, ("SecretRepaired", "made Secret orders-app anew: it was gone")):
        give(place, OWNER, {**LOGIN, "password": "another one"})
        one.until("it is back", lambda: place.secret("orders-app").get("password") == "another one", 60)
    one.wait_ready()
    one.until("it opens", lambda: who(one, place.secret("orders-app")) == "keeper", HEALED_WITHIN)
    with pytest.raises(CommandFailed, match=REFUSED):
        who(one, kept)


def test_a_users_password_is_lost(one: ClusterUnderTest) -> None:
    """Who has it goes on, and another one that is given is set."""
    place, grants = one.place, [{"database": "shop", "privileges": ["ALL"]}]
    give(place, "chosen", {"word": "chosen by hand"})
    chosen = {"name": "chosen", "key": "word"}
    place.declare("DatabaseUser", "clerk", one.reference(user="clerk", password=chosen, grants=grants))
    place.wait_current("databaseuser", "clerk", "ProvisionSucceeded")
    kept = place.secret("clerk-user")
    assert who(one, kept) == "clerk"

    with place.telling("clerk", ("ProvisionFailed", "there is no Secret chosen with the password: create it")):
        place.kubectl("delete", "secret", "chosen")
        place.wait_reason("databaseuser", "clerk", "ProvisionFailed")
    assert place.secret("clerk-user") == kept and who(one, kept) == "clerk"

    def is_another() -> bool:
        login = place.secret("clerk-user")
        return login["password"] == "chosen anew" and who(one, login) == "clerk"

    with place.telling("clerk", "ProvisionSucceeded"):
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
    return one.place.get("secret", "orders-admin")


def administrator(one: ClusterUnderTest) -> dict[str, str]:
    """How the administrator logs in."""
    entries, login = one.place.secret("orders-admin"), one.place.secret("orders-app")
    named = {"user": entries["username"], "dbname": one.engine.administrative}
    return {**login, **named, "password": entries["password"]}


def test_the_administrators_secret_of_retained_data_is_made_anew(one: ClusterUnderTest) -> None:
    """The operator comes in by certificate."""
    former = administrator(one)
    retain(one)
    one.place.kubectl("delete", "secret", "orders-admin")
    with one.place.telling(one.name, ("SecretRepaired", "made Secret orders-admin anew: it was gone")):
        one.apply(deletionPolicy="Delete")
        one.wait_ready()
    assert one.sql("SELECT n FROM kept", "shop") == "7"
    one.until("it opens", lambda: who(one, administrator(one)) == former["user"], HEALED_WITHIN)
    with pytest.raises(CommandFailed, match=REFUSED):
        who(one, former)


def test_retained_data_that_no_cluster_is_known_to_have_made_wait_for_their_secret(one: ClusterUnderTest) -> None:
    """As volumes do that come out of a copy, without the rest."""
    place, former = one.place, administrator(one)
    lost = retain(one)
    claims = {c["metadata"]["name"]: c["metadata"]["uid"] for c in place.all("pvc")}
    store = [name for name in place.names("configmaps") if name.startswith(f"configmap/{one.name}-")]
    assert store, "what says who made the data"
    place.kubectl("delete", "secret/orders-admin", *store)
    with place.telling(one.name, ("AdministratorSecretMissing", "Secret orders-admin ")):
        one.apply(deletionPolicy="Delete")
        said = one.wait_reason("AdministratorSecretMissing")["message"]
    assert "PersistentVolumeClaim data-orders-0" in said and "restore the Secret" in said
    assert one.status["phase"] == "Failed" and not one.nodes() and not place.secret("orders-admin")

    metadata = {key: lost["metadata"][key] for key in ("name", "labels")}
    place.make({**lost, "metadata": metadata})
    one.wait_ready()
    assert {c["metadata"]["name"]: c["metadata"]["uid"] for c in place.all("pvc")} == claims
    assert one.sql("SELECT n FROM kept", "shop") == "7"
    assert administrator(one) == former and who(one, former) == former["user"]
