"""Certificates of a cluster follow each other, its own and given ones, and nobody who is connected notices."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from database_support.e2e.cluster import ClusterUnderTest, SqlClient, writing
from database_support.e2e.engines import EACH_ENGINE, POSTGRESQL
from database_support.e2e.patroni_cluster import view
from database_support.nodes.served_certificates import served_certificate
from framework_support.certificates import CertificateAuthority
from steersman.meta import ObjectKey
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.certificates.model import (
    CertificateRequest,
    Data,
    build_certificate_set,
    pooler_services,
)

pytestmark = [pytest.mark.xdist_group("cluster-certificates"), pytest.mark.timeout(900), EACH_ENGINE]

Record = Callable[[str, object], None]
GIVEN = "given"
POOLERS = "--selector=app.kubernetes.io/name=pgbouncer"


def poolers(cluster: ClusterUnderTest) -> list[str]:
    """Those that are not on their way out."""
    found = cluster.namespace_client.all("pods", POOLERS)
    return [p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]]


def all_show(cluster: ClusterUnderTest, certificate: str) -> bool:
    pods = [*cluster.pods(), *poolers(cluster)]
    return {served_certificate(cluster, pod) for pod in pods} == {certificate.strip()}


def seen_as(cluster: ClusterUnderTest) -> DeclaredCluster:
    found = view(cluster.name, cluster.namespace_client.namespace, "any")
    return replace(found, kind=cluster.engine.kind, engine=cluster.engine.settings)


def aged(cluster: ClusterUnderTest) -> Mapping[ObjectKey, Data]:
    """What the Secrets hold after 1,010 days: another authority has been trusted for half a year, and is due."""
    seen = seen_as(cluster)
    ring: Mapping[ObjectKey, Data] = {}
    pooled = cluster.engine is POSTGRESQL
    wish = CertificateRequest(pooler=pooled, services=pooler_services(seen) if pooled else ())
    now = datetime.now(UTC)
    for days in (1010, 185, 184):
        ring = build_certificate_set(seen, wish, ring, None, now - timedelta(days=days)).data
    ring = {seen.names.ca_secret: ring[seen.names.ca_secret]}
    return build_certificate_set(seen, wish, ring, None, now - timedelta(days=62)).data


def write(cluster: ClusterUnderTest, name: str, data: Data) -> None:
    encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
    cluster.namespace_client.patch("secret", name, {"data": encoded})


def told(cluster: ClusterUnderTest, secret: str) -> str:
    """By what a Secret says that the servers are verified."""
    return cluster.namespace_client.secret(secret)["ca.crt"]


def get_in(cluster: ClusterUnderTest) -> None:
    """Whoever reads its Secret only now, and has nothing else, verifies the servers by that."""
    for secret, user in (("shop-app", "shop"), ("clerk-user", "clerk")):
        client = SqlClient(cluster, secret, name=f"client-{user}")
        client.start()
        assert client.by_uri(cluster.engine.current_user) == user
        client.stop()


def test_ca_rotation_replaces_authority_without_write_error(three: ClusterUnderTest, record_property: Record) -> None:
    """Behind a pooler too, where there is one."""
    pooled = three.engine is POSTGRESQL
    if pooled:
        three.apply(pooler={"replicas": 1, "readOnly": False})
    three.wait_ready()
    clerk = {"user": "clerk", "database": "shop", "grants": [{"database": "shop", "privileges": ["ALL"]}]}
    three.namespace_client.apply("DatabaseUser", "clerk", three.reference(**clerk))
    three.namespace_client.wait_reason("databaseuser", "clerk", "ProvisionSucceeded")
    three.annotate("paused", "true")
    three.wait_reason("ByAnnotation", "Paused")
    ring = aged(three)
    for key, data in ring.items():
        write(three, key.name, data)
    # They are read at the start. Nobody looks after the instances meanwhile: they come back by themselves.
    for pods in (three.selector, POOLERS):
        three.namespace_client.kubectl("delete", "pods", pods, "--ignore-not-found", "--timeout=120s", seconds=130)
    three.until("all are back", lambda: three.sql(three.engine.is_following) == "2", 180)

    names = seen_as(three).names
    old = ring[names.server_certificate]["tls.crt"].decode()
    three.until("they show what is old", lambda: all_show(three, old), 60)
    three.until("clients are told", lambda: told(three, "shop-app") == told(three, names.server_certificate.name), 60)
    pooler = f"{three.name}-pooler-rw.{three.namespace_client.namespace}.svc"
    with ExitStack() as stack:
        # A session that waits was not dropped.
        seen = stack.enter_context(writing(three, "shop-app", settings=three.engine.lock_wait))
        writers = [seen]
        if pooled:
            writers.append(stack.enter_context(writing(three, "shop-app", pooler, table="pooled")))
        client = seen.client
        three.namespace_client.kubectl("exec", client.name, "--", "cp", "/tls/ca.crt", "/tmp/ca.crt")
        login = client.login.replace("/tls/ca.crt", "/tmp/ca.crt")
        began = time.time()
        three.annotate("paused", None)

        def followed() -> bool:
            assert client.sql("SELECT 1", login) == "1", "who logs in meanwhile verifies"
            new = three.namespace_client.secret(names.server_certificate.name)["tls.crt"]
            return new != old and all_show(three, new)

        three.until("all show the new one", followed, 180)
        record_property("own certificates: seconds until all show the next", round(time.time() - began, 1))
        authority = three.namespace_client.secret(names.ca_secret.name)["server.crt"]
        assert authority != ring[names.ca_secret]["server.crt"].decode(), "by another authority"
        three.wait_ready()
        get_in(three)
        for each in writers:
            each.wait_for_writes(time.time())
            record_property("own certificates: longest gap in writes, in seconds", round(each.longest_gap, 1))
            assert each.errors == [], "no session was dropped"
            assert each.lost_rows() == 0
    three.apply(pooler=None)
    three.until("the pooler is gone", lambda: not poolers(three))


def issue(cluster: ClusterUnderTest, authority: CertificateAuthority, host: str = "*") -> dict[str, bytes]:
    certificate, key = authority.issue("orders", names=[f"{host}.{cluster.namespace_client.namespace}.svc"])
    return {"tls.crt": certificate, "tls.key": key, "ca.crt": authority.certificate}


def give(cluster: ClusterUnderTest, data: Mapping[str, bytes]) -> None:
    """Makes the Secret that is given."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": GIVEN}, "type": "kubernetes.io/tls"}
    cluster.namespace_client.create(
        {**secret, "data": {key: base64.b64encode(content).decode() for key, content in data.items()}}
    )


def test_custom_certificate_is_served_renewed_and_validated(three: ClusterUnderTest, record_property: Record) -> None:
    authority = CertificateAuthority()
    first = issue(three, authority)
    give(three, first)
    with writing(three, "shop-app", settings=three.engine.lock_wait) as seen:
        three.apply(tls={"serverSecret": {"name": GIVEN}})
        three.until("all show it", lambda: all_show(three, first["tls.crt"].decode()), 120)
        given = authority.certificate.decode()
        assert given in told(three, "orders-tls")
        three.until("clients are told", lambda: given in told(three, "shop-app"), 30)
        fresh = SqlClient(three, "shop-app")
        fresh.start()
        assert fresh.sql("SELECT 1") == "1", "whoever trusts the given authority gets in"

        renewed, began = issue(three, authority), time.time()
        write(three, GIVEN, renewed)
        three.until("all show the renewed one", lambda: all_show(three, renewed["tls.crt"].decode()), 120)
        record_property("given certificate: seconds until all show the renewed one", round(time.time() - began, 1))
        assert fresh.sql("SELECT 1") == "1"

        for wrong, said in (
            (issue(three, authority, "elsewhere"), "is not for"),
            (issue(three, authority) | {"tls.key": renewed["tls.key"]}, "is not the key"),
        ):
            write(three, GIVEN, wrong)
            three.until(
                "it is judged",
                lambda said=said: said in three.wait_reason("SecretInvalid", "CertificatesValid")["message"],
                60,
            )
            three.wait_degraded("CertificatesValid: ")
            assert all_show(three, renewed["tls.crt"].decode()), "The servers use the previous certificate"
        write(three, GIVEN, renewed)
        three.wait_reason("Valid", "CertificatesValid")
        three.wait_ready()

        three.apply(tls=None)
        three.until(
            "its own is shown again",
            lambda: all_show(three, three.namespace_client.secret("orders-tls")["tls.crt"]),
            120,
        )
        assert three.namespace_client.secret("orders-tls")["tls.crt"] != renewed["tls.crt"].decode()
        fresh.stop()
        seen.wait_for_writes(time.time())
        record_property("given certificate: longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.errors == [], "no session was dropped"
    three.wait_ready()
    with writing(three, "shop-app") as seen:
        seen.wait_for_writes(time.time())


def test_custom_certificate_deleted_keeps_last_one_served(three: ClusterUnderTest) -> None:
    authority = CertificateAuthority()
    former, following = issue(three, authority), issue(three, authority)
    # What somebody patched is not applied again.
    three.namespace_client.kubectl("delete", "secret", GIVEN, "--ignore-not-found")
    give(three, former)
    with writing(three, "shop-app", settings=three.engine.lock_wait) as seen:
        three.apply(tls={"serverSecret": {"name": GIVEN}})
        three.until("all show it", lambda: all_show(three, former["tls.crt"].decode()), 120)
        three.wait_ready()

        with three.namespace_client.expecting_events(
            three.name, ("SecretInvalid", f"Secret {GIVEN}: it does not exist")
        ):
            three.namespace_client.kubectl("delete", "secret", GIVEN)
            three.wait_reason("SecretInvalid", "CertificatesValid", 60)
        three.wait_degraded(f"CertificatesValid: Secret {GIVEN}: it does not exist")
        assert all_show(three, former["tls.crt"].decode()), "The servers use the previous certificate"
        assert authority.certificate.decode() in told(three, "shop-app"), "and can be verified"

        with three.namespace_client.expecting_events(
            three.name, ("Valid", f"the server certificate from Secret {GIVEN} ")
        ):
            give(three, following)
            three.wait_reason("Valid", "CertificatesValid", 60)
        three.until("all show the next", lambda: all_show(three, following["tls.crt"].decode()), 120)
        three.wait_ready()
        three.apply(tls=None)
        three.until(
            "its own is shown again",
            lambda: all_show(three, three.namespace_client.secret("orders-tls")["tls.crt"]),
            120,
        )
        seen.wait_for_writes(time.time())
        assert seen.errors == [], "no session was dropped"
    three.wait_ready()
