"""The page on types does what it says, and names every marker."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Annotated, get_args

import pytest
import yaml
from typer.testing import CliRunner

from framework_support.documented_code import DOCS, Pages
from steersman.meta import Field, Resource, Spec, Status, resource
from steersman_cli import app
from steersman_manifests.crd import SchemaError, definition
from steersman_manifests.crd.breaking_change import BreakingChangeRule
from steersman_testing import InMemoryApiServer

PAGE = "how-to/write-types.md"


def page_text(page: str) -> str:
    return (DOCS / page).read_text()


def code_block(language: str, title: str) -> str:
    match = re.search(rf"```{language}{title}\n(.*?)```", page_text(PAGE), re.DOTALL)
    assert match is not None
    return match[1]


def test_types_page_kinds_are_served(pages: Pages) -> None:
    load = pages(PAGE)
    server = InMemoryApiServer()
    server.load(definition(load("shops").Shop))
    load("tills_v1beta1")
    crd = load("tills_v1").crd
    assert [v["name"] for v in crd["spec"]["versions"]] == ["v1", "v1beta1"]
    assert crd["spec"]["versions"][1]["deprecationWarning"].startswith("use shops.example.com/v1")


def test_crd_diff_output_matches_page(pages: Pages, tmp_path: Path) -> None:
    manifest = definition(pages(PAGE)("shops").Shop)
    manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["tills"][
        "maximum"
    ] = 50
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(manifest))
    result = CliRunner().invoke(app, ["crd", "diff", "shops", str(new)])
    assert result.output == code_block("console", "").partition("\n")[2]


def test_schema_error_matches_page() -> None:
    class CartSpec(Spec):
        wheels: Annotated[int, Field(ge=4)] = 3

    @resource(group="shops.example.com", version="v1")
    class Cart(Resource[CartSpec, Status]):
        """A cart."""

    with pytest.raises(SchemaError) as caught:
        definition(Cart)
    assert str(caught.value) == code_block("text", ' title="mistake"').rstrip("\n")


def test_types_page_lists_every_marker() -> None:
    page = page_text(PAGE)
    for name in (*Field.__struct_fields__, *inspect.signature(resource).parameters):
        assert f"{name}=" in page or name in ("kind", "plural", "list_kind"), name


def test_cli_page_lists_every_crd_diff_rule() -> None:
    page = page_text("reference/cli.md")
    assert [rule for rule in get_args(BreakingChangeRule) if f"`{rule}`" not in page] == []
