"""Check the manifests, commands and tables of the pages about databases."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click import Context
from typer.main import get_command

from database_support.unit.declared_clusters import declared_cluster
from framework_support.documented_code import DOCS
from steersman.client.transport import HttpRequest
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.api.kstatus import KSTATUS_CONDITIONS
from steersman_databases.api.reasons import REASONS_BY_KIND
from steersman_databases.core.labels import cluster_labels
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.postgresql.ha.patroni import PORT, REST_PORT
from steersman_databases.features.access.policies import network_policy
from steersman_databases.features.bootstrap.specs import post_init_labels
from steersman_databases.features.pooler.specs import pooler_labels
from steersman_databases.kubectl.app import app as plugin
from steersman_manifests.crd import definition
from steersman_testing import InMemoryApiServer

ROOT = DOCS.parent
OPERATOR = ROOT / "operators/databases/src/steersman_databases"
GROUP = "databases.steersman.dev"
KINDS = (PostgreSQLCluster, MySQLCluster, Database, DatabaseUser, BackupStore, Backup, Restore)
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
HEREDOC = re.compile(r"<<'?EOF'?\n(.*?)^EOF$", re.MULTILINE | re.DOTALL)
PATCH = re.compile(r"kubectl patch (?P<kind>\w+) (?P<name>\S+)[^']*'(?P<patch>{.*?})'$", re.MULTILINE)
# The other fields of a minimal object of each kind.
SPECS: dict[type[Any], dict[str, Any]] = {
    PostgreSQLCluster: {"version": "15"},
    MySQLCluster: {"version": "9.7"},
    Database: {"engine": "postgresql", "version": "17"},
    DatabaseUser: {"user": "clerk"},
    BackupStore: {"s3": {"bucket": "backups"}, "credentials": {"secretRef": {"name": "credentials"}}},
    Backup: {"clusterRef": {"name": "shop"}},
    Restore: {"clusterRef": {"name": "shop"}, "target": {"latest": {}}, "only": [{"database": "shop"}]},
}


def database_pages() -> list[Path]:
    """Return all pages that are not generated."""
    found = [p for p in sorted(DOCS.rglob("*.md")) if p.parent.name not in ("fields", "decisions")]
    return [ROOT / "README.md", *found]


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for block in BLOCK.finditer(page.read_text()):
        if block["language"] in languages:
            yield re.sub(f"^{block['indent']}", "", block["code"], flags=re.MULTILINE)


def commands(page: Path, program: str) -> Iterator[str]:
    """Yield the commands of shell and console blocks. Continued lines are joined."""
    for code in blocks(page, "sh", "console"):
        for line in code.replace("\\\n", " ").splitlines():
            typed = line.removeprefix("$ ").partition("   #")[0].strip()
            yield from (
                part.strip() for part in re.split(r" (?:\|\|?|&&) ", typed) if part.strip().startswith(program)
            )


def manifests(page: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete objects of YAML blocks and here documents."""
    texts = [*blocks(page, "yaml"), *(m[1] for code in blocks(page, "sh") for m in HEREDOC.finditer(code))]
    for text in texts:
        for found in yaml.safe_load_all(text):
            if isinstance(found, dict) and {"apiVersion", "kind"} <= found.keys():
                yield found


def find_kind(name: str) -> type[Any] | None:
    for kind in KINDS:
        names: Any = definition(kind)["spec"]["names"]
        if name in (names["kind"], names["plural"], names["singular"], *names["shortNames"]):
            return kind
    return None


@pytest.fixture
def server() -> InMemoryApiServer:
    """Return a server with the kinds of the database operator."""
    found = InMemoryApiServer()
    found.register(*KINDS)
    return found


def send_request(server: InMemoryApiServer, method: str, path: str, body: Any) -> tuple[int, str]:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    query = {"fieldValidation": "Strict", "dryRun": "All"}
    encoded = msgspec.json.encode(body)
    response = server.handle(
        HttpRequest(method=method, path=path, query=query, body=encoded, content_type=content_type)
    )
    return response.status, response.body.decode()


def test_page_manifests_are_accepted_by_api_server(server: InMemoryApiServer) -> None:
    taken: set[str] = set()
    namespaces = {"default"}
    for page in database_pages():
        for manifest in manifests(page):
            if not manifest["apiVersion"].startswith(f"{GROUP}/"):
                continue
            kind = find_kind(manifest["kind"])
            assert kind is not None, f"{page}: {manifest['kind']}"
            namespace = manifest["metadata"].get("namespace", "default")
            if namespace not in namespaces:
                server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
                namespaces.add(namespace)
            path = kind.api_resource.path(namespace=namespace)
            code, response_text = send_request(server, "POST", path, manifest)
            assert code == 201, f"{page}: {manifest['metadata']['name']}: {response_text}"
            taken.add(manifest["kind"])
    assert taken == {kind.__name__ for kind in KINDS}


def test_network_policy_page_admits_required_pods() -> None:
    page = DOCS / "how-to/encrypt-and-log-in.md"
    (shown,) = (found for found in manifests(page) if found["kind"] == "NetworkPolicy")
    names = ClusterNames(ObjectKey("default", "shop"))
    ours: Any = to_builtins(network_policy(names, {}, PORT, [REST_PORT], "steersman-databases-system"))
    assert shown["spec"]["podSelector"] == ours["spec"]["podSelector"]
    assert shown["metadata"]["name"] != ours["metadata"]["name"]
    needed = shown["spec"]["ingress"][-1]
    assert [p["port"] for p in needed["ports"]] == [PORT, REST_PORT]
    members, operator = needed["from"]
    assert operator == ours["spec"]["ingress"][-1]["from"][-1]
    selected = members["podSelector"]["matchLabels"].items()
    shop = declared_cluster("shop")
    for labels in (cluster_labels(shop), pooler_labels(shop, "rw"), post_init_labels(shop)):
        assert selected <= labels.items()


def test_page_patches_name_existing_fields(server: InMemoryApiServer) -> None:
    for kind, spec in SPECS.items():
        names = {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind.__name__}
        server.load({**names, "metadata": {"name": "patched", "namespace": "default"}, "spec": spec})
    patched = 0
    for page in database_pages():
        for code in blocks(page, "sh", "console"):
            for found in PATCH.finditer(code):
                kind = find_kind(found["kind"])
                if kind is None:
                    continue
                path = kind.api_resource.path(ObjectKey("default", "patched"))
                code, response_text = send_request(server, "PATCH", path, json.loads(found["patch"]))
                # Pages also show rejected values, but no unknown fields.
                assert code in (200, 422), f"{page}: {found[0]}: {response_text}"
                assert "unknown field" not in response_text, f"{page}: {found[0]}: {response_text}"
                patched += 1
    assert patched > 5


def test_page_plugin_commands_exist() -> None:
    command: Any = get_command(plugin)
    used: set[str] = set()
    for page in database_pages():
        for line in commands(page, "kubectl steersman "):
            # Where it is only about the text: a cluster is named, or nothing is.
            arguments = shlex.split(line)[2:]
            try:
                used.add(resolve_command(command, arguments))
            except Exception as error:
                raise AssertionError(f"{page}: {line}") from error
    assert used >= set(command.commands) - {"mysql"}


def resolve_command(command: Any, arguments: list[str]) -> str:
    """The name of the command that takes these words. Raises UsageError if none does."""
    context = Context(command)
    name, found, rest = command.resolve_command(context, arguments)
    found.make_context(name, rest, parent=context)
    return name


def printer_columns() -> list[list[str]]:
    """The first lines of ``kubectl get`` and ``kubectl steersman status``."""
    status_columns = [["NAME", "INSTANCES", "READY", "PRIMARY", "VERSION", "PHASE"]]
    for kind in KINDS:
        version: Any = definition(kind)["spec"]["versions"][0]
        crd_columns = version["additionalPrinterColumns"]
        status_columns += [
            ["NAME", *(c["name"].upper() for c in crd_columns if wide or not c.get("priority"))]
            for wide in (False, True)
        ]
    return status_columns


def test_page_tables_have_columns_of_kubectl() -> None:
    seen = 0
    for page in database_pages():
        for code in blocks(page, "text", "console"):
            for line in code.splitlines():
                header = line.split()
                if header[:1] == ["NAME"] and {"PHASE", "REASON", "PRIMARY"} & set(header):
                    assert header in printer_columns(), f"{page}: {line}"
                    seen += 1
    assert seen > 3


def test_page_annotations_exist_in_source() -> None:
    source = "".join(path.read_text() for path in OPERATOR.rglob("*.py"))
    known = set(re.findall(rf"(?:{re.escape(GROUP)}|{{GROUP}})/([a-z-]+)", source))
    assert {"paused", "fenced-instances", "switchover", "restarted-at", "force-delete"} <= known
    for page in database_pages():
        used = set(re.findall(rf"{re.escape(GROUP)}/([a-z-]+)\b(?!1)", page.read_text())) - {"v"}
        assert used <= known, page


def test_pages_name_only_existing_conditions() -> None:
    known = {condition for conditions in REASONS_BY_KIND.values() for condition in conditions} | {*KSTATUS_CONDITIONS}
    waited = re.compile(
        r"--for=condition=(\w+)(?==\w+)? (?:pg|db|dbu|bst|postgresqlcluster)/"
        r"|(?:pg|db|dbu|bst)/\S+ --for=condition=(\w+)"
    )
    for page in database_pages():
        text = page.read_text()
        used = {name for found in waited.findall(text) for name in found if name}
        used |= set(re.findall(r'@\.type=="(\w+)"', text)) if "kubectl get pg" in text else set()
        assert used <= known, page
