"""Check that reference pages have each reason, metric, field and option."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard, get_args

import pytest
import typer
from typer.main import get_command

from devcluster.__main__ import app as devcluster
from steersman.observability import metrics
from steersman_cli import testing
from steersman_databases.api import Database, DatabaseUser, PostgreSQLCluster
from steersman_databases.api.read_replicas import ReadReplicaReason
from steersman_databases.api.reasons import REASONS_BY_KIND
from steersman_databases.engines import SUPPORTED_VERSIONS, override_variable
from steersman_databases.kubectl.app import app as plugin
from steersman_databases.main import app
from steersman_manifests.crd import definition

ROOT = Path(__file__).parents[3]
OPERATOR = ROOT / "operators" / "databases" / "src" / "steersman_databases"
TROUBLESHOOTING = "how-to/troubleshoot-a-database.md"
# The call's name, and the position of the reason among its arguments.
REPORTING_CALLS = {"Blocked": 1, "Change": 0, "normal": 1, "warning": 1, "_tell": 0}
REASON_PATTERN = re.compile(r"^[A-Z][a-z]+(?:[A-Z][A-Za-z]+)*$")
KUBERNETES_REASONS = {
    *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    *("Forbidden", "Invalid", "BadRequest"),
}
"""Reasons that are the words of the API server and of kubelets."""
READ_REPLICA_REASONS = set(get_args(ReadReplicaReason))
"""Reasons of a status, and of no condition."""


def page_text(page: str) -> str:
    return (ROOT / "docs" / page).read_text()


def reported_reasons() -> Iterator[str]:
    """Yield the literal reasons of conditions and Events in the operator's source."""
    for file in OPERATOR.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            reason_nodes: list[ast.expr] = []
            if isinstance(node, ast.Return | ast.Assign) and isinstance(node.value, ast.Tuple | ast.IfExp):
                reason_nodes = [each.elts[0] for each in ast.walk(node.value) if is_reason_pair(each)]
            elif isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name == "FieldError":
                    continue
                reason_nodes = [k.value for k in node.keywords if k.arg == "reason"]
                if name in REPORTING_CALLS and len(node.args) > REPORTING_CALLS[name]:
                    reason_nodes.append(node.args[REPORTING_CALLS[name]])
            whole = (each for each in reason_nodes if not isinstance(each, ast.JoinedStr))
            for value in (literal for each in whole for literal in ast.walk(each)):
                if (
                    isinstance(value, ast.Constant)
                    and isinstance(value.value, str)
                    and REASON_PATTERN.match(value.value)
                ):
                    yield value.value


def is_reason_pair(node: ast.AST) -> TypeGuard[ast.Tuple]:
    """Return True if the node is a pair of reason and message."""
    if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
        return False
    words = node.elts[1]
    return isinstance(words, ast.JoinedStr) or (isinstance(words, ast.Constant) and isinstance(words.value, str))


def page_section(page: str, title: str) -> str:
    """Return the text of a section, including its subsections."""
    level = title.partition(" ")[0]
    _, found, rest = page_text(page).partition(f"\n{title}\n")
    assert found, f"{page} has no heading {title!r}"
    return re.split(rf"^#{{2,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def documented_reasons(part: str) -> set[str]:
    """Return the reasons in the first column of the tables."""
    return {
        reason
        for line in re.findall(r"^\| (`[A-Z].*?) \|", part, re.MULTILINE)
        for reason in re.findall(r"`(\w+)`", line)
    }


@pytest.mark.parametrize(
    ("kind", "condition"), [(kind, each) for kind, found in REASONS_BY_KIND.items() for each in found]
)
def test_troubleshooting_lists_reasons_of_each_condition(kind: str, condition: str) -> None:
    # Common reasons of both cluster kinds are documented once.
    own, common = set(REASONS_BY_KIND[kind][condition]), set(REASONS_BY_KIND["PostgreSQLCluster"].get(condition, ()))
    of = "" if own <= common else f" of a {kind}"
    found = documented_reasons(page_section(TROUBLESHOOTING, f"### Condition `{condition}`{of}"))
    assert found - KUBERNETES_REASONS == (own if of else common)


def test_troubleshooting_has_every_event_and_no_other() -> None:
    events = documented_reasons(page_section(TROUBLESHOOTING, "## Other Events"))
    conditions = {reason for found in REASONS_BY_KIND.values() for reasons in found.values() for reason in reasons}
    conditions |= {condition for found in REASONS_BY_KIND.values() for condition in found}
    source = "".join(file.read_text() for file in OPERATOR.rglob("*.py"))
    assert {"Created", "Failover", "PasswordReset"} <= events
    assert sorted(event for event in events if f'"{event}"' not in source) == []
    reported = {reason for reason in reported_reasons() if f'"{reason}"' in source} - conditions - KUBERNETES_REASONS
    assert sorted(reported - events - READ_REPLICA_REASONS) == []


def test_page_of_read_replicas_has_every_reason_of_their_status() -> None:
    found = documented_reasons(page_section("how-to/scale-reads.md", "## See what it does"))
    assert found == READ_REPLICA_REASONS


def test_metrics_page_lists_every_metric() -> None:
    page = page_text("reference/metrics.md")
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"`{name}`" in page


@pytest.mark.parametrize("kind", [Database, DatabaseUser])
def test_kind_page_lists_every_field(kind: type[Database | DatabaseUser]) -> None:
    page = page_text(f"reference/{kind.__name__.lower()}.md")
    version: Any = definition(kind)["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        for field in schema[part]["properties"]:
            assert f"| `{field}` |" in page
    for column in version["additionalPrinterColumns"]:
        assert f"`{column['name'].upper()}`" in page


@pytest.mark.parametrize("kind", [Database, PostgreSQLCluster])
def test_troubleshooting_lists_every_phase(kind: type[Database | PostgreSQLCluster]) -> None:
    version: Any = definition(kind)["spec"]["versions"][0]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    for phase in status["properties"]["phase"]["enum"]:
        assert f"| `{phase}` |" in page_section(TROUBLESHOOTING, "## Phases")


def test_cli_page_lists_every_operator_option() -> None:
    page = page_text("reference/cli.md")
    command: Any = get_command(app)
    assert "`steersman-databases`" in page
    for parameter in command.params:
        assert f"`{parameter.opts[0]}`" in page


def test_reference_lists_every_serve_option() -> None:
    group: Any = get_command(testing.group)
    options = [o for p in group.commands["serve"].params for o in p.opts]
    assert "--tls" in options
    assert [o for o in options if f"| `{o}` |" not in page_text("reference/cli.md")] == []


def test_reference_lists_every_project_command() -> None:
    page = page_text("reference/cli.md")
    # The command itself, which would be a second `app` here.
    group: Any = get_command(importlib.import_module("steersman_cli").app)
    assert [
        name for name in flatten_commands(group) if f"steersman {name}" not in page and f"`{name}`" not in page
    ] == []
    others = ("create", "crd", "testing", "version")
    commands = subcommands(group)
    found = [command for name, command in commands.items() if name not in others]
    found += subcommands(commands["create"]).values()
    options = {o for command in found for p in command.params for o in p.opts if o.startswith("--")}
    assert {"--crd-version", "--url"} <= options
    assert sorted(o for o in options - {"--reload"} if f"`{o}`" not in page) == []


def subcommands(group: Any) -> dict[str, Any]:
    context = typer.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


def flatten_commands(group: Any, prefix: str = "") -> Iterator[str]:
    for name, command in subcommands(group).items():
        if hasattr(command, "commands"):
            yield from flatten_commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def test_cli_page_lists_every_devcluster_command() -> None:
    found = list(flatten_commands(get_command(devcluster)))
    assert "up" in found
    assert [name for name in found if f"`{name}" not in page_text("reference/cli.md")] == []


def test_cli_page_lists_every_plugin_command() -> None:
    page = page_text("reference/cli.md").partition("## kubectl steersman")[2].partition("\n## ")[0]
    found = list(flatten_commands(get_command(plugin)))
    assert "status" in found
    assert [name for name in found if f"`{name} " not in page] == []


def test_cli_page_lists_every_image_variable() -> None:
    for engine, versions in SUPPORTED_VERSIONS.items():
        for version in versions:
            assert f"`{override_variable(engine, version)}`" in page_text("reference/cli.md")


def test_cli_page_lists_every_make_target() -> None:
    targets = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(t for t in targets if t != "help" and f"`{t}`" not in page_text("reference/cli.md")) == []
