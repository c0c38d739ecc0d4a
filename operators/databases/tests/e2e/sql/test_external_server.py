"""What is on a server of somebody else: it goes away and comes back, is not who it should be, or lets nobody in."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from database_support.e2e.cluster import NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL
from database_support.e2e.external_server import REGISTRAR, REGISTRY, ExternalServer, secret
from framework_support.certificates import CertificateAuthority

pytestmark = [pytest.mark.xdist_group("referred-server"), EACH_ENGINE]

Record = Callable[[str, object], None]
TOLD_WITHIN = 30.0
DONE_WITHIN = 60.0
ELSEWHERE = 15432
"""A port of neither engine's."""


def grants(server: ExternalServer, database: str) -> list[Mapping[str, Any]]:
    return [{"database": database, "privileges": ["CONNECT" if server.engine is POSTGRESQL else "SELECT"]}]


def refused(
    place: NamespaceClient, kind: str, name: str, *words: str, seconds: float = TOLD_WITHIN
) -> Mapping[str, Any]:
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


def done(place: NamespaceClient, kind: str, name: str, seconds: float = DONE_WITHIN) -> float:
    """How many seconds it takes until the present declaration is so."""
    began = time.monotonic()
    generation = place.get(kind, name)["metadata"]["generation"]

    def is_so() -> bool:
        ready = place.condition(kind, name)
        return ready.get("status") == "True" and ready["observedGeneration"] == generation

    place.until(f"{kind} {name} is as declared", is_so, seconds, about=(kind, name))
    return time.monotonic() - began


def test_service_created_later_is_resolved(server: ExternalServer, record_property: Record) -> None:
    place = server.namespace_client
    place.apply("Database", "late", {**server.server_ref("later"), "deletionPolicy": "Delete"})
    place.apply(
        "DatabaseUser", "early", {**server.server_ref("later"), "user": "early", "grants": grants(server, "late")}
    )
    for kind, name in (("database", "late"), ("databaseuser", "early")):
        refused(place, kind, name, "Service later does not exist", "Create the cluster or Service")
    server.serve("later")
    for kind, name in (("database", "late"), ("databaseuser", "early")):
        record_property(f"seconds until {name} is there", round(done(place, kind, name), 1))
    assert server.query_as(place.secret("early-user"), "SELECT 1") == "1"


def test_host_and_port_are_resolved(server: ExternalServer) -> None:
    place = server.namespace_client
    server.serve("detour", ELSEWHERE)
    ways: Mapping[str, Mapping[str, Any]] = {
        "hosted": {"host": server.host},
        "ported": {"service": {"name": "detour"}, "port": ELSEWHERE},
        "detoured": {"host": f"detour.{place.namespace}.svc", "port": ELSEWHERE},
    }
    for way, named in ways.items():
        on = server.server_ref()
        del on["serverRef"]["service"]
        on["serverRef"] |= named
        guest = f"{way}-guest"
        place.apply("Database", way, {**on, "deletionPolicy": "Delete"})
        place.apply("DatabaseUser", guest, {**on, "user": guest, "grants": grants(server, way)})
    for way, named in ways.items():
        done(place, "database", way)
        done(place, "databaseuser", f"{way}-guest")
        for login in (place.secret(f"{way}-app"), place.secret(f"{way}-guest-user")):
            assert server.query_as(login, "SELECT 1") == "1"
            assert (login["port"] == str(ELSEWHERE)) is ("port" in named)


def test_server_unreachable_temporarily_recovers(server: ExternalServer, record_property: Record) -> None:
    """Who is on it says so, and whatever is declared meanwhile is there soon after the server is."""
    place = server.namespace_client
    on = server.server_ref()
    clerk = {**on, "user": "clerk", "grants": grants(server, "shop")}
    place.apply("Database", "shop", {**on, "deletionPolicy": "Delete"})
    place.apply("DatabaseUser", "clerk", clerk)
    for kind, name in (("database", "shop"), ("databaseuser", "clerk")):
        done(place, kind, name)
    logins = {name: place.secret(name) for name in ("shop-app", "clerk-user")}
    server.query_as(logins["shop-app"], "CREATE TABLE kept (n INT); INSERT INTO kept VALUES (7)")

    server.scale(0)
    for kind, name in (("database", "shop"), ("databaseuser", "clerk")):
        refused(place, kind, name, f"cannot reach {server.host}:")
    assert place.condition("database", "shop")["reason"] == "ServerUnreachable"
    # What is new is not waited with in silence either.
    place.apply("DatabaseUser", "novice", {**on, "user": "novice", "grants": grants(server, "shop")})
    refused(place, "databaseuser", "novice", f"cannot reach {server.host}:")
    place.apply("DatabaseUser", "clerk", {**clerk, "connectionLimit": 3})

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
    assert server.query_as(logins["shop-app"], "SELECT n FROM kept") == "7"
    assert server.query_as(logins["clerk-user"], "SELECT 1") == "1"
    assert server.query_as(place.secret("novice-user"), "SELECT 1") == "1"


def certificates(place: NamespaceClient, name: str, authority: CertificateAuthority) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    place.create({**manifest, "data": {"bundle.pem": authority.certificate.decode()}})


def test_server_certificate_is_verified(server: ExternalServer) -> None:
    """By its authority, in a ConfigMap or a Secret, and by its name, as far as it is declared."""
    place = server.namespace_client
    entry = f"--from-literal=ca.crt={server.authority.certificate.decode()}"
    place.kubectl("create", "secret", "generic", "its-authority", entry)
    certificates(place, "its-authority", server.authority)
    certificates(place, "another", CertificateAuthority())
    server.serve("alias")
    secret = {"secretKeyRef": {"name": "its-authority", "key": "ca.crt"}}
    known = {"configMapKeyRef": {"name": "its-authority", "key": "bundle.pem"}}
    other = {"configMapKeyRef": {"name": "another", "key": "bundle.pem"}}

    def user(name: str, on: Mapping[str, Any]) -> None:
        place.apply("DatabaseUser", name, {**on, "user": name})

    user("by-secret", server.server_ref(mode="VerifyFull", ca=secret))
    user("by-default", server.server_ref(ca=known))
    user("by-authority", server.server_ref("alias", mode="VerifyCA", ca=known))
    user("stranger", server.server_ref(ca=other))
    user("misnamed", server.server_ref("alias", ca=known))
    user("untold", server.server_ref(mode="VerifyFull"))
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
    user("misnamed", server.server_ref("alias", mode="VerifyCA", ca=known))
    done(place, "databaseuser", "misnamed")


def told(server: ExternalServer, *words: str) -> None:
    """``archive`` and ``archivist`` say what is missing, and go on being there."""
    refused(server.namespace_client, "databaseuser", "archivist", *words)
    refused(server.namespace_client, "database", "archive", *words)
    assert server.namespace_client.condition("database", "archive")["reason"] == "AdministratorSecretMissing"
    assert server.query_as(server.namespace_client.secret("archivist-user"), "SELECT 1") == "1"


def test_referenced_objects_deleted_and_recreated_recover(server: ExternalServer) -> None:
    place = server.namespace_client
    lost = secret("lost", place.secret(server.administrator))
    place.create(lost)
    certificates(place, "lost", server.authority)
    on = server.server_ref(mode="VerifyCA", ca={"configMapKeyRef": {"name": "lost", "key": "bundle.pem"}})
    on["serverRef"]["administrator"] = {"name": "lost"}
    place.apply("Database", "archive", {**on, "deletionPolicy": "Delete"})
    place.apply("DatabaseUser", "archivist", {**on, "user": "archivist", "grants": grants(server, "archive")})

    def well() -> None:
        for kind, name in (("database", "archive"), ("databaseuser", "archivist")):
            done(place, kind, name)

    well()
    login = place.secret("archivist-user")
    place.kubectl("delete", "secret", "lost")
    told(server, "Secret lost does not exist")
    place.create(lost)
    well()
    for key in ("username", "password"):
        place.patch("secret", "lost", {"data": {key: None}})
        told(server, f"Secret lost has no key {key}")
        place.create(lost)
        well()
    place.kubectl("delete", "configmap", "lost")
    told(server, "lost has no key bundle.pem")
    certificates(place, "lost", server.authority)
    well()
    assert place.secret("archivist-user") == login


def test_administrator_logs_in_by_client_certificate(server: ExternalServer) -> None:
    """Its Secret has entries of other names, and on PostgreSQL it comes into another database than ``postgres``."""
    place, password = server.namespace_client, secrets.token_urlsafe(12)
    server.create_certificate_admin(password)
    place.create(secret(REGISTRAR, {"login": REGISTRAR, "word": password, "username": "nobody", "password": "wrong"}))
    for name, authority in (("shown", server.authority), ("strange", CertificateAuthority())):
        certificate, key = authority.issue(REGISTRAR)
        place.create({**secret(name, {"tls.crt": certificate, "tls.key": key}), "type": "kubernetes.io/tls"})
    administrator = {"name": REGISTRAR, "usernameKey": "login", "passwordKey": "word"}

    def declare(database: str | None, certificate: str | None, **keys: str) -> None:
        on = server.server_ref(mode="Require", **({"clientCertificate": certificate} if certificate else {}))
        on["serverRef"] |= {"administrator": {**administrator, **keys}}
        on["serverRef"] |= {"maintenanceDatabase": database} if database else {}
        place.apply("Database", "register", {**on, "deletionPolicy": "Delete"})
        place.apply("DatabaseUser", "entrant", {**on, "user": "entrant", "grants": grants(server, "register")})

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
    assert server.query_as(login, "SELECT 1") == "1"

    shown = place.get("secret", "shown")["data"]
    place.kubectl("delete", "secret", "shown")
    refused_both("Secret shown has no matching certificate and key in tls.crt and tls.key")
    assert place.condition("database", "register")["reason"] == "AdministratorSecretMissing"
    place.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shown"}, "data": shown})
    for kind, name in (("database", "register"), ("databaseuser", "entrant")):
        done(place, kind, name)
    assert place.secret("entrant-user") == login
    for each in ("databaseuser/entrant", "database/register"):
        place.kubectl("delete", each, "--timeout=60s", seconds=70)


@pytest.fixture
def neighbours(server: ExternalServer) -> Iterator[NamespaceClient]:
    """Another namespace than the server's."""
    target, name = server.namespace_client.target, f"{server.namespace_client.namespace}-guests"
    target.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    target.kubectl("create", "namespace", name)
    yield NamespaceClient(target, name)
    target.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)


def test_allowed_namespaces_are_enforced(server: ExternalServer, neighbours: NamespaceClient) -> None:
    """Service and Secret each by an annotation; nobody learns from the refusal what another namespace holds."""
    home = server.namespace_client

    def let_in(kind: str, name: str, value: str | None) -> None:
        annotations = {"databases.steersman.dev/allowed-namespaces": value}
        home.patch(kind, name, {"metadata": {"annotations": annotations}})

    server.serve("public")
    on = server.server_ref("public", home.namespace)
    neighbours.apply("Database", "guests", {**on, "deletionPolicy": "Delete"})
    visitor = {**on, "user": "visitor", "grants": grants(server, "guests")}
    neighbours.apply("DatabaseUser", "visitor", visitor)
    absent = server.server_ref("absent", home.namespace)
    neighbours.apply("DatabaseUser", "seeker", {**absent, "user": "seeker"})
    unknown = "does not exist, or does not permit namespace"
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
    assert server.query_as(login, "SELECT 1") == "1"

    let_in("service", "public", "others")
    refused(neighbours, "databaseuser", "visitor", f"Service {home.namespace}/public {unknown}", seconds=60)
    assert server.query_as(login, "SELECT 1") == "1", "what is there goes on"
    let_in("service", "public", "*")
    done(neighbours, "databaseuser", "visitor")
    done(neighbours, "database", "guests")
    neighbours.kubectl("delete", "databaseuser,database", "--all", "--timeout=60s", seconds=70)
