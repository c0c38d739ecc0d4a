"""What the operator's command reads of where it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from database_support.cluster_views import view
from steersman_databases.api.cluster_parts import Pooler
from steersman_databases.clusters.keyring import server_names
from steersman_databases.main import own_namespace, searched_domain
from steersman_databases.resources.pooler import pooler_configuration


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("search shop.svc.example.org svc.example.org example.org\nnameserver 10.96.0.10\n", "example.org"),
        ("nameserver 10.96.0.10\nsearch default.svc.k8s.local. svc.k8s.local. k8s.local.\n", "k8s.local"),
        ("nameserver 192.0.2.1\nsearch example.org\n", "cluster.local"),
        ("", "cluster.local"),
    ],
)
def test_the_domain_is_the_one_that_a_pod_searches(tmp_path: Path, text: str, domain: str) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(text)
    assert searched_domain(resolver) == domain
    assert searched_domain(tmp_path / "missing") == "cluster.local"


def test_servers_and_poolers_are_called_by_names_of_the_domain() -> None:
    elsewhere = replace(view(), cluster_domain="example.org")
    assert "orders-rw.shop.svc.example.org" in server_names(elsewhere, ())
    told = repr(pooler_configuration(elsewhere, Pooler(), "rw"))
    assert "orders-rw.shop.svc.example.org" in told and "cluster.local" not in told


def test_the_operators_namespace_is_its_service_accounts(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("steersman-databases-system")
    assert own_namespace(tmp_path / "namespace") == "steersman-databases-system"
    assert own_namespace(tmp_path / "missing") == ""
