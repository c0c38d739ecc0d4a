"""``generate_package``: models of our own definitions round-trip."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from framework_support.crd_foreign.packages import kinds_of, ruff, written
from framework_support.crd_twins import TWINS
from framework_support.crd_twins.normal import differences, same_to_the_server
from steersman.errors import ConfigurationError
from steersman.meta import Object, decode_builtins
from steersman_cli.codegen import generate_package
from steersman_manifests.crd import definition, violations
from steersman_testing import InMemoryApiServer, virtual_runtime


@pytest.fixture(scope="module")
def repository_crds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    found = {plural: definition(*kinds) for plural, kinds in TWINS.items()}
    written(found.values(), tmp_path_factory.mktemp("own"), "own_twins")
    return found


@pytest.mark.parametrize("plural", TWINS)
def test_models_round_trip_to_crd(repository_crds: dict[str, dict[str, Any]], plural: str) -> None:
    regenerated = definition(*kinds_of(repository_crds[plural], "own_twins"))
    expected = same_to_the_server(repository_crds[plural], descriptions=True)
    assert list(differences(expected, same_to_the_server(regenerated, descriptions=True))) == []


def build_crd(spec: dict[str, Any], *, kind: str = "Odd", **version: Any) -> dict[str, Any]:
    text = {"type": "string"}
    heads = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}}
    properties = {**heads, "spec": {"type": "object", **spec}}
    crd_version: dict[str, Any] = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        **version,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.odd.example.com"},
        "spec": {
            "group": "odd.example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{kind.lower()}s"},
            "versions": [
                {**crd_version, "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}
            ],
        },
    }


def spec_schema(**properties: Any) -> dict[str, Any]:
    return {"properties": properties}


def generate_module(manifest: dict[str, Any], directory: Path, name: str) -> Any:
    written([manifest], directory, name)
    return import_module(f"{name}.odd_example_com_v1")


def test_models_reserved_names_are_escaped(tmp_path: Path) -> None:
    text = {"type": "string"}
    names = dict.fromkeys(
        ("from", "str", "tuple", "class", "2xx", "fooBar", "foo_bar", "a-b", "clusterIP", "$ref"), text
    )
    generated = generate_module(build_crd(spec_schema(**names)), tmp_path, "odd_names")
    spec = decode_builtins({name: name for name in names}, generated.OddSpec)
    assert (spec.from_, spec.str_, spec.tuple_, spec.class_, spec.n2xx) == ("from", "str", "tuple", "class", "2xx")
    assert (spec.foo_bar, spec.foo_bar_2, spec.a_b, spec.cluster_ip, spec.ref) == (
        *("fooBar", "foo_bar", "a-b", "clusterIP", "$ref"),
    )
    again = definition(generated.Odd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert again["properties"]["spec"]["properties"].keys() == names.keys()


def test_models_equal_class_names_are_disambiguated(tmp_path: Path) -> None:
    def struct(**inner: Any) -> dict[str, Any]:
        return {"type": "object", **spec_schema(**inner)}

    number, text = {"type": "integer"}, {"type": "string"}
    nested = spec_schema(aB=struct(c=number), a=struct(b=struct(c=text)))
    generated = generate_module(build_crd(nested), tmp_path, "odd_classes")
    spec = decode_builtins({"aB": {"c": 1}, "a": {"b": {"c": "x"}}}, generated.OddSpec)
    assert (type(spec.a_b).__name__, type(spec.a.b).__name__) == ("OddSpecAB", "OddSpecAB2")


def test_models_kind_named_like_marker_is_disambiguated(tmp_path: Path) -> None:
    fielded = generate_module(
        build_crd(spec_schema(a={"type": "string", "maxLength": 3}), kind="Field"), tmp_path, "odd_field"
    )
    assert definition(fielded.FieldKind)["spec"]["names"]["kind"] == "Field"


def test_models_unsupported_keywords_are_noted() -> None:
    generated = generate_package(
        [
            build_crd(
                spec_schema(
                    either={"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
                    kind={"type": "string", "format": "unheard-of"},
                    yes={"type": "boolean", "enum": [True]},
                    fine={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                )
            )
        ]
    )
    assert [note.partition(" ")[2] for note in generated.unsupported_features] == [
        "Odd.spec.either: oneOf [{'pattern': 'a'}, {'pattern': 'b'}]",
        "Odd.spec.kind: the format 'unheard-of'",
        "Odd.spec.yes: enum [True]",
    ]
    assert all(note.partition(" ")[2] in "".join(generated.files.values()) for note in generated.unsupported_features)


def test_models_without_descriptions_omit_docstrings() -> None:
    manifest = build_crd(spec_schema(a={"type": "string", "description": "Told."}))
    assert "Told." in "".join(generate_package([manifest]).files.values())
    assert "Told." not in "".join(generate_package([manifest], descriptions=False).files.values())


def test_models_descriptions_are_escaped(tmp_path: Path) -> None:
    evil = 'a "quote" \\ """ + __import__("os").system("false") + \'\'\' {x}\n\ttabs and é'
    texts = {"type": "array", "items": {"type": "string"}}
    manifest = build_crd(
        spec_schema(
            a={"type": "string", "description": evil + '"', "default": evil, "enum": [evil, "b'"]},
            b={"type": "object", "default": {evil: [evil]}, "additionalProperties": texts},
        )
    )
    generated = generate_module(manifest, tmp_path, "odd_texts")
    found = definition(generated.Odd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    assert found["a"]["default"] == evil and found["a"]["enum"] == [evil, "b'"]
    assert found["b"]["default"] == {evil: [evil]}
    assert found["a"]["description"].split() == (evil + '"').split()


def test_models_open_values_are_immutable(tmp_path: Path) -> None:
    unknown = {"x-kubernetes-preserve-unknown-fields": True}
    manifest = build_crd(
        spec_schema(
            any=unknown,
            items={"type": "array", "items": unknown},
            map={"type": "object", **unknown},
            object={"type": "object", "x-kubernetes-embedded-resource": True, **unknown},
            either={"x-kubernetes-int-or-string": True},
        )
    )
    generated = generate_module(manifest, tmp_path, "odd_open")
    wire: dict[str, Any] = {
        "any": {"a": [1]},
        "items": [{"b": 2}],
        "map": {"c": {}},
        "object": {"kind": "Pod"},
        "either": "50%",
    }
    spec = decode_builtins(wire, generated.OddSpec)
    assert hash(spec) and spec.any == {"a": (1,)}
    regenerated = definition(generated.Odd)
    assert list(differences(same_to_the_server(manifest), same_to_the_server(regenerated))) == []


def test_models_output_is_independent_of_input_order() -> None:
    manifests = [definition(*kinds) for kinds in TWINS.values()]
    assert generate_package(manifests).files == generate_package(reversed(manifests)).files


def test_models_reject_invalid_definitions() -> None:
    with pytest.raises(ConfigurationError, match="convert it to apiextensions"):
        generate_package([{**build_crd(spec_schema()), "apiVersion": "apiextensions.k8s.io/v1beta1"}])
    with pytest.raises(ConfigurationError, match="is declared twice"):
        generate_package([build_crd(spec_schema()), build_crd(spec_schema())])


@pytest.mark.parametrize("width", [88, 118])
def test_models_output_is_formatted_and_lint_free(tmp_path: Path, width: int) -> None:
    written((definition(*kinds) for kinds in TWINS.values()), tmp_path, f"own_{width}", width=width)
    assert ruff(tmp_path, width) == ""


def test_models_work_with_in_memory_server(repository_crds: dict[str, dict[str, Any]]) -> None:
    (task,) = kinds_of(repository_crds["tasks"], "own_twins")
    server = InMemoryApiServer(virtual_runtime())
    server.register(task)

    def task_of(schedule: str) -> Object:
        return decode_builtins({"metadata": {"name": "a"}, "spec": {"schedule": schedule}}, task)

    server.load(task_of("0 0 * * *"))
    assert violations(task_of("0 0 * * *")) == ()
    assert violations(task_of("x")) == (".spec.schedule must be at least 9 characters long, but is 1",)
