"""What the operator's command reads of where it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from database_support.unit.declared_clusters import declared_cluster
from steersman_databases.api.cluster_common import PoolerSettings
from steersman_databases.features.certificates.model import server_sans
from steersman_databases.features.pooler.specs import pooler_configuration
from steersman_databases.main import app, own_namespace, searched_domain


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("search shop.svc.example.org svc.example.org example.org\nnameserver 10.96.0.10\n", "example.org"),
        ("nameserver 10.96.0.10\nsearch default.svc.k8s.local. svc.k8s.local. k8s.local.\n", "k8s.local"),
        ("nameserver 192.0.2.1\nsearch example.org\n", "cluster.local"),
        ("", "cluster.local"),
    ],
)
def test_cluster_domain_is_read_from_resolv_conf(tmp_path: Path, text: str, domain: str) -> None:
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(text)
    assert searched_domain(resolver) == domain
    assert searched_domain(tmp_path / "missing") == "cluster.local"


def test_server_names_use_cluster_domain() -> None:
    elsewhere = replace(declared_cluster(), cluster_domain="example.org")
    assert "orders-rw.shop.svc.example.org" in server_sans(elsewhere, ())
    told = repr(pooler_configuration(elsewhere, PoolerSettings(), "rw"))
    assert "orders-rw.shop.svc.example.org" in told and "cluster.local" not in told


def test_operator_namespace_is_read_from_service_account(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("steersman-databases-system")
    assert own_namespace(tmp_path / "namespace") == "steersman-databases-system"
    assert own_namespace(tmp_path / "missing") == ""


@pytest.mark.parametrize("value", ["10.0.0/8", "10.0.0.1/8", "db.example.com"])
def test_invalid_server_network_names_its_flag(value: str) -> None:
    result = CliRunner().invoke(app, ["--server-networks", f"192.0.2.0/24,{value}"])
    assert result.exit_code == 2
    assert f"Invalid value for '--server-networks': '{value}' is not a CIDR such as 10.0.0.0/8" in result.output
