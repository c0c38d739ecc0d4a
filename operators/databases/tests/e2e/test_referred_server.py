"""What is on a server of somebody else: it goes away and comes back, is not who it should be, or lets nobody in."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from database_support.cluster_engines import EACH, POSTGRESQL
from database_support.cluster_under_test import Place
from database_support.referred_server import REGISTRAR, REGISTRY, ReferredServer, secret
from framework_support.certificates import CertificateAuthority

pytestmark = [pytest.mark.xdist_group("referred-server"), EACH]

Record = Callable[[str, object], None]
TOLD_WITHIN = 30.0
DONE_WITHIN = 60.0
ELSEWHERE = 15432
"""A port of neither engine's."""


def grants(server: ReferredServer, database: str) -> list[Mapping[str, Any]]:
    return [{"database": database, "privileges": ["CONNECT" if server.engine is POSTGRESQL else "SELECT"]}]


def refused(place: Place, kind: str, name: str, *words: str, seconds: float = TOLD_WITHIN) -> Mapping[str, Any]:
    """The condition Ready once it is False with all these words, which an Event has told, too."""

    def found() -> Mapping[str, Any] | None:
        ready = place.condition(kind, name)
        said = ready.get("message", "")
        return ready if ready.get("status") == "False" and all(word in said for word in words) else None

    ready = place.until(f"{kind} {name} says {words}", found, seconds, about=(kind, name))
    place.until(
        f"an Event of {name} says so", lambda: ready["message"] in place.events(name, ready["reason"]), TOLD_WITHIN
    )
    return ready


def done(place: Place, kind: str, name: str, seconds: float = DONE_WITHIN) -> float:
    """How many seconds it takes until the present declaration is so."""
    began = time.monotonic()
    generation = place.get(kind, name)["metadata"]["generation"]

    def is_so() -> bool:
        ready = place.condition(kind, name)
        return ready.get("status") == "True" and ready["observedGeneration"] == generation

    place.until(f"{kind} {name} is as declared", is_so, seconds, about=(kind, name))
    return time.monotonic() - began


def test_a_service_that_comes_later_is_found(server: ReferredServer, record_property: Record) -> None:
    place = server.place
    place.declare("Database", "late", {**server.on("later"), "deletionPolicy": "Delete"})
    place.declare("DatabaseUser", "early", {**server.on("later"), "user": "early", "grants": grants(server, "late")})
    for kind, name in (("database", "late"), ("databaseuser", "early")):
        refused(place, kind, name, "there is no Service later", "create the cluster or Service")
    server.serve("later")
    for kind, name in (("database", "late"), ("databaseuser", "early")):
        record_property(f"seconds until {name} is there", round(done(place, kind, name), 1))
    assert server.ask(place.secret("early-user"), "SELECT 1") == "1"


def test_it_is_found_by_a_host_and_at_another_port(server: ReferredServer) -> None:
    place = server.place
    server.serve("detour", ELSEWHERE)
    ways: Mapping[str, Mapping[str, Any]] = {
        "hosted": {"host": server.host},
        "ported": {"service": {"name": "detour"}, "port": ELSEWHERE},
        "detoured": {"host": f"detour.{place.namespace}.svc", "port": ELSEWHERE},
    }
    for way, named in ways.items():
        on = server.on()
        del on["serverRef"]["service"]
        on["serverRef"] |= named
        guest = f"{way}-guest"
        place.declare("Database", way, {**on, "deletionPolicy": "Delete"})
        place.declare("DatabaseUser", guest, {**on, "user": guest, "grants": grants(server, way)})
    for way, named in ways.items():
        done(place, "database", way)
        done(place, "databaseuser", f"{way}-guest")
        for login in (place.secret(f"{way}-app"), place.secret(f"{way}-guest-user")):
            assert server.ask(login, "SELECT 1") == "1"
            assert (login["port"] == str(ELSEWHERE)) is ("port" in named)


def test_a_server_that_goes_away_for_a_while(server: ReferredServer, record_property: Record) -> None:
    """Who is on it says so, and whatever is declared meanwhile is there soon after the server is."""
    place = server.place
    on = server.on()
    clerk = {**on, "user": "clerk", "grants": grants(server, "shop")}
    place.declare("Database", "shop", {**on, "deletionPolicy": "Delete"})
    place.declare("DatabaseUser", "clerk", clerk)
    for kind, name in (("database", "shop"), ("databaseuser", "clerk")):
        done(place, kind, name)
    logins = {name: place.secret(name) for name in ("shop-app", "clerk-user")}
    server.ask(logins["shop-app"], "CREATE TABLE kept (n INT); INSERT INTO kept VALUES (7)")

    server.scale(0)
    for kind, name in (("database", "shop"), ("databaseuser", "clerk")):
        refused(place, kind, name, f"cannot reach {server.host}:")
    assert place.condition("database", "shop")["reason"] == "ServerUnreachable"
    # What is new is not waited with in silence either.
    place.declare("DatabaseUser", "novice", {**on, "user": "novice", "grants": grants(server, "shop")})
    refused(place, "databaseuser", "novice", f"cannot reach {server.host}:")
    place.declare("DatabaseUser", "clerk", {**clerk, "connectionLimit": 3})

    def told_of_this_one() -> bool:
        found = place.get("databaseuser", "clerk")
        ready = place.condition("databaseuser", "clerk")
        return ready["status"] == "False" and ready["observedGeneration"] == found["metadata"]["generation"]

    place.until("the next declaration is told of, too", told_of_this_one, DONE_WITHIN)
    for name, reason in (("shop", "ServerUnreachable"), ("clerk", "ProvisionFailed"), ("novice", "ProvisionFailed")):
        assert 0 < len(place.events(name, reason)) < 5, "told when it is news, not with each try"

    server.scale(1)
    for kind, name in (("databaseuser", "novice"), ("databaseuser", "clerk"), ("database", "shop")):
        record_property(f"seconds until {name} is as declared", round(done(place, kind, name), 1))
    assert {name: place.secret(name) for name in logins} == logins
    assert server.ask(logins["shop-app"], "SELECT n FROM kept") == "7"
    assert server.ask(logins["clerk-user"], "SELECT 1") == "1"
    assert server.ask(place.secret("novice-user"), "SELECT 1") == "1"


def certificates(place: Place, name: str, authority: CertificateAuthority) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    place.make({**manifest, "data": {"bundle.pem": authority.certificate.decode()}})


def test_its_certificate_is_verified(server: ReferredServer) -> None:
    """By its authority, in a ConfigMap or a Secret, and by its name, as far as it is declared."""
    place = server.place
    entry = f"--from-literal=ca.crt={server.authority.certificate.decode()}"
    place.kubectl("create", "secret", "generic", "its-authority", entry)
    certificates(place, "its-authority", server.authority)
    certificates(place, "another", CertificateAuthority())
    server.serve("alias")
    secret = {"secretKeyRef": {"name": "its-authority", "key": "ca.crt"}}
    known = {"configMapKeyRef": {"name": "its-authority", "key": "bundle.pem"}}
    other = {"configMapKeyRef": {"name": "another", "key": "bundle.pem"}}

    def user(name: str, on: Mapping[str, Any]) -> None:
        place.declare("DatabaseUser", name, {**on, "user": name})

    user("by-secret", server.on(mode="VerifyFull", ca=secret))
    user("by-default", server.on(ca=known))
    user("by-authority", server.on("alias", mode="VerifyCA", ca=known))
    user("stranger", server.on(ca=other))
    user("misnamed", server.on("alias", ca=known))
    user("untold", server.on(mode="VerifyFull"))
    for name in ("by-secret", "by-default", "by-authority"):
        done(place, "databaseuser", name)
    assert place.secret("by-default-user")["ca.crt"] == server.authority.certificate.decode()
    refused(place, "databaseuser", "stranger", f"cannot reach {server.host}:", "certificate")
    refused(place, "databaseuser", "untold", f"cannot reach {server.host}:", "certificate")
    refused(place, "databaseuser", "misnamed", f"alias.{place.namespace}.svc", "match")
    catalog = "pg_roles WHERE rolname" if server.engine is POSTGRESQL else "mysql.user WHERE user"
    assert server.sql(f"SELECT COUNT(*) FROM {catalog} IN ('stranger', 'misnamed', 'untold')") == "0"

    # Authorities are corrected where they stand: nobody touches the objects.
    certificates(place, "another", server.authority)
    done(place, "databaseuser", "stranger")
    user("misnamed", server.on("alias", mode="VerifyCA", ca=known))
    done(place, "databaseuser", "misnamed")


def told(server: ReferredServer, *words: str) -> None:
    """``archive`` and ``archivist`` say what is missing, and go on being there."""
    refused(server.place, "databaseuser", "archivist", *words)
    refused(server.place, "database", "archive", *words)
    assert server.place.condition("database", "archive")["reason"] == "AdministratorSecretMissing"
    assert server.ask(server.place.secret("archivist-user"), "SELECT 1") == "1"


def test_what_it_names_is_lost_and_comes_back(server: ReferredServer) -> None:
    place = server.place
    lost = secret("lost", place.secret(server.administrator))
    place.make(lost)
    certificates(place, "lost", server.authority)
    on = server.on(mode="VerifyCA", ca={"configMapKeyRef": {"name": "lost", "key": "bundle.pem"}})
    on["serverRef"]["administrator"] = {"name": "lost"}
    place.declare("Database", "archive", {**on, "deletionPolicy": "Delete"})
    place.declare("DatabaseUser", "archivist", {**on, "user": "archivist", "grants": grants(server, "archive")})

    def well() -> None:
        for kind, name in (("database", "archive"), ("databaseuser", "archivist")):
            done(place, kind, name)

    well()
    login = place.secret("archivist-user")
    place.kubectl("delete", "secret", "lost")
    told(server, "there is no Secret lost")
    place.make(lost)
    well()
    for key in ("username", "password"):
        place.patch("secret", "lost", {"data": {key: None}})
        told(server, f"Secret lost has no key {key}")
        place.make(lost)
        well()
    place.kubectl("delete", "configmap", "lost")
    told(server, "there is no key bundle.pem in lost")
    certificates(place, "lost", server.authority)
    well()
    assert place.secret("archivist-user") == login


def test_an_administrator_who_shows_a_certificate(server: ReferredServer) -> None:
    """Its Secret has entries of other names, and on PostgreSQL it comes into another database than ``postgres``."""
    place, password = server.place, secrets.token_urlsafe(12)
    server.appoint(password)
    place.make(secret(REGISTRAR, {"login": REGISTRAR, "word": password, "username": "nobody", "password": "wrong"}))
    for name, authority in (("shown", server.authority), ("strange", CertificateAuthority())):
        certificate, key = authority.issue(REGISTRAR)
        place.make({**secret(name, {"tls.crt": certificate, "tls.key": key}), "type": "kubernetes.io/tls"})
    administrator = {"name": REGISTRAR, "usernameKey": "login", "passwordKey": "word"}

    def declare(database: str | None, certificate: str | None, **keys: str) -> None:
        on = server.on(mode="Require", **({"clientCertificate": certificate} if certificate else {}))
        on["serverRef"] |= {"administrator": {**administrator, **keys}}
        on["serverRef"] |= {"maintenanceDatabase": database} if database else {}
        place.declare("Database", "register", {**on, "deletionPolicy": "Delete"})
        place.declare("DatabaseUser", "entrant", {**on, "user": "entrant", "grants": grants(server, "register")})

    def refused_both(*words: str) -> None:
        for kind, name in (("databaseuser", "entrant"), ("database", "register")):
            refused(place, kind, name, *words)

    declare(REGISTRY, "shown", usernameKey="username", passwordKey="password")
    refused_both('the server rejected the administrator "nobody"')
    if server.engine is POSTGRESQL:
        declare(None, "shown")
        refused_both("pg_hba.conf rejects connection", 'database "postgres"')
    declare(REGISTRY, None)
    refused_both("certificate" if server.engine is POSTGRESQL else f'rejected the administrator "{REGISTRAR}"')
    declare(REGISTRY, "strange")
    refused_both(f"cannot reach {server.host}:")
    declare(REGISTRY, "shown")
    for kind, name in (("database", "register"), ("databaseuser", "entrant")):
        done(place, kind, name)
    login = place.secret("entrant-user")
    assert server.ask(login, "SELECT 1") == "1"

    shown = place.get("secret", "shown")["data"]
    place.kubectl("delete", "secret", "shown")
    refused_both("Secret shown holds no certificate with its key in tls.crt and tls.key")
    assert place.condition("database", "register")["reason"] == "AdministratorSecretMissing"
    place.make({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shown"}, "data": shown})
    for kind, name in (("database", "register"), ("databaseuser", "entrant")):
        done(place, kind, name)
    assert place.secret("entrant-user") == login
    for each in ("databaseuser/entrant", "database/register"):
        place.kubectl("delete", each, "--timeout=60s", seconds=70)


@pytest.fixture
def neighbours(server: ReferredServer) -> Iterator[Place]:
    """Another namespace than the server's."""
    target, name = server.place.target, f"{server.place.namespace}-guests"
    target.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    target.kubectl("create", "namespace", name)
    yield Place(target, name)
    target.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)


def test_it_lets_in_the_namespaces_that_it_names(server: ReferredServer, neighbours: Place) -> None:
    """Service and Secret each by an annotation; nobody learns from the refusal what another namespace holds."""
    home = server.place

    def let_in(kind: str, name: str, value: str | None) -> None:
        annotations = {"databases.steersman.dev/allowed-namespaces": value}
        home.patch(kind, name, {"metadata": {"annotations": annotations}})

    server.serve("public")
    on = server.on("public", home.namespace)
    neighbours.declare("Database", "guests", {**on, "deletionPolicy": "Delete"})
    visitor = {**on, "user": "visitor", "grants": grants(server, "guests")}
    neighbours.declare("DatabaseUser", "visitor", visitor)
    absent = server.on("absent", home.namespace)
    neighbours.declare("DatabaseUser", "seeker", {**absent, "user": "seeker"})
    unknown = "does not exist, or does not let in namespace"
    advice = "databases.steersman.dev/allowed-namespaces"
    for kind, name, service in (
        ("database", "guests", "public"),
        ("databaseuser", "visitor", "public"),
        ("databaseuser", "seeker", "absent"),
    ):
        refused(
            neighbours, kind, name, f"Service {home.namespace}/{service} {unknown} {neighbours.namespace}", advice
        )

    let_in("service", "public", f"others, {neighbours.namespace}")
    refused(neighbours, "database", "guests", f"Secret {home.namespace}/{server.administrator} {unknown}", advice)
    let_in("secret", server.administrator, "others")
    assert neighbours.condition("database", "guests")["status"] == "False"
    let_in("secret", server.administrator, f"others,{neighbours.namespace}")
    done(neighbours, "database", "guests")
    done(neighbours, "databaseuser", "visitor")
    login = neighbours.secret("visitor-user")
    assert server.ask(login, "SELECT 1") == "1"

    let_in("service", "public", "others")
    refused(neighbours, "databaseuser", "visitor", f"Service {home.namespace}/public {unknown}", seconds=60)
    assert server.ask(login, "SELECT 1") == "1", "what is there goes on"
    let_in("service", "public", "*")
    done(neighbours, "databaseuser", "visitor")
    done(neighbours, "database", "guests")
    neighbours.kubectl("delete", "databaseuser,database", "--all", "--timeout=60s", seconds=70)
