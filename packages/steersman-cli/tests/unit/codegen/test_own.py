"""Types → definition → types → definition: the second definition means what the first one does."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from framework_support.crd_foreign.packages import kinds_of, ruff, written
from framework_support.crd_twins import TWINS
from framework_support.crd_twins.normal import differences, same_to_the_server
from steersman.crd import definition, violations
from steersman.errors import ConfigurationError
from steersman.meta import Object, decode_builtins
from steersman_cli.codegen import package
from steersman_testing import InMemoryApiServer, virtual_runtime


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    found = {plural: definition(*kinds) for plural, kinds in TWINS.items()}
    written(found.values(), tmp_path_factory.mktemp("own"), "own_twins")
    return found


@pytest.mark.parametrize("plural", TWINS)
def test_the_way_there_and_back(own: dict[str, dict[str, Any]], plural: str) -> None:
    again = definition(*kinds_of(own[plural], "own_twins"))
    former = same_to_the_server(own[plural], descriptions=True)
    assert list(differences(former, same_to_the_server(again, descriptions=True))) == []


def crd(spec: dict[str, Any], *, kind: str = "Odd", **version: Any) -> dict[str, Any]:
    text = {"type": "string"}
    heads = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}}
    properties = {**heads, "spec": {"type": "object", **spec}}
    one: dict[str, Any] = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.odd.example.com"},
        "spec": {
            "group": "odd.example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{kind.lower()}s"},
            "versions": [{**one, "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}],
        },
    }


def fields(**properties: Any) -> dict[str, Any]:
    return {"properties": properties}


def module(manifest: dict[str, Any], directory: Path, name: str) -> Any:
    written([manifest], directory, name)
    return import_module(f"{name}.odd_example_com_v1")


def test_names_that_python_or_annotations_use(tmp_path: Path) -> None:
    text = {"type": "string"}
    names = dict.fromkeys(
        ("from", "str", "tuple", "class", "2xx", "fooBar", "foo_bar", "a-b", "clusterIP", "$ref"), text
    )
    odd = module(crd(fields(**names)), tmp_path, "odd_names")
    spec = decode_builtins({name: name for name in names}, odd.OddSpec)
    assert (spec.from_, spec.str_, spec.tuple_, spec.class_, spec.n2xx) == ("from", "str", "tuple", "class", "2xx")
    assert (spec.foo_bar, spec.foo_bar_2, spec.a_b, spec.cluster_ip, spec.ref) == (
        *("fooBar", "foo_bar", "a-b", "clusterIP", "$ref"),
    )
    again = definition(odd.Odd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert again["properties"]["spec"]["properties"].keys() == names.keys()


def test_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    def struct(**inner: Any) -> dict[str, Any]:
        return {"type": "object", **fields(**inner)}

    number, text = {"type": "integer"}, {"type": "string"}
    nested = fields(aB=struct(c=number), a=struct(b=struct(c=text)))
    odd = module(crd(nested), tmp_path, "odd_classes")
    spec = decode_builtins({"aB": {"c": 1}, "a": {"b": {"c": "x"}}}, odd.OddSpec)
    assert (type(spec.a_b).__name__, type(spec.a.b).__name__) == ("OddSpecAB", "OddSpecAB2")


def test_a_kind_that_is_called_like_a_marker(tmp_path: Path) -> None:
    fielded = module(crd(fields(a={"type": "string", "maxLength": 3}), kind="Field"), tmp_path, "odd_field")
    assert definition(fielded.FieldKind)["spec"]["names"]["kind"] == "Field"


def test_what_no_type_can_say_is_named() -> None:
    made = package(
        [
            crd(
                fields(
                    either={"type": "string", "oneOf": [{"pattern": "a"}, {"pattern": "b"}]},
                    kind={"type": "string", "format": "unheard-of"},
                    yes={"type": "boolean", "enum": [True]},
                    fine={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                )
            )
        ]
    )
    assert [note.partition(" ")[2] for note in made.notes] == [
        "Odd.spec.either: oneOf [{'pattern': 'a'}, {'pattern': 'b'}]",
        "Odd.spec.kind: the format 'unheard-of'",
        "Odd.spec.yes: enum [True]",
    ]
    assert all(note.partition(" ")[2] in "".join(made.files.values()) for note in made.notes)


def test_without_descriptions_there_are_no_docstrings() -> None:
    manifest = crd(fields(a={"type": "string", "description": "Told."}))
    assert "Told." in "".join(package([manifest]).files.values())
    assert "Told." not in "".join(package([manifest], descriptions=False).files.values())


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    evil = 'a "quote" \\ """ + __import__("os").system("false") + \'\'\' {x}\n\ttabs and é'
    texts = {"type": "array", "items": {"type": "string"}}
    manifest = crd(
        fields(
            a={"type": "string", "description": evil + '"', "default": evil, "enum": [evil, "b'"]},
            b={"type": "object", "default": {evil: [evil]}, "additionalProperties": texts},
        )
    )
    odd = module(manifest, tmp_path, "odd_texts")
    found = definition(odd.Odd)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    assert found["a"]["default"] == evil and found["a"]["enum"] == [evil, "b'"]
    assert found["b"]["default"] == {evil: [evil]}
    assert found["a"]["description"].split() == (evil + '"').split()


def test_open_values_are_immutable_and_kept(tmp_path: Path) -> None:
    unknown = {"x-kubernetes-preserve-unknown-fields": True}
    manifest = crd(
        fields(
            any=unknown,
            items={"type": "array", "items": unknown},
            map={"type": "object", **unknown},
            object={"type": "object", "x-kubernetes-embedded-resource": True, **unknown},
            either={"x-kubernetes-int-or-string": True},
        )
    )
    odd = module(manifest, tmp_path, "odd_open")
    wire: dict[str, Any] = {
        "any": {"a": [1]},
        "items": [{"b": 2}],
        "map": {"c": {}},
        "object": {"kind": "Pod"},
        "either": "50%",
    }
    spec = decode_builtins(wire, odd.OddSpec)
    assert hash(spec) and spec.any == {"a": (1,)}
    kept = definition(odd.Odd)
    assert list(differences(same_to_the_server(manifest), same_to_the_server(kept))) == []


def test_the_same_definitions_give_the_same_text_in_any_order() -> None:
    manifests = [definition(*kinds) for kinds in TWINS.values()]
    assert package(manifests).files == package(reversed(manifests)).files


def test_what_is_no_definition_of_v1_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="only apiextensions"):
        package([{**crd(fields()), "apiVersion": "apiextensions.k8s.io/v1beta1"}])
    with pytest.raises(ConfigurationError, match="is there twice"):
        package([crd(fields()), crd(fields())])


@pytest.mark.parametrize("width", [88, 118])
def test_nothing_is_left_to_format_or_to_lint(tmp_path: Path, width: int) -> None:
    written((definition(*kinds) for kinds in TWINS.values()), tmp_path, f"own_{width}", width=width)
    assert ruff(tmp_path, width) == ""


def test_the_server_in_memory_serves_them(own: dict[str, dict[str, Any]]) -> None:
    (task,) = kinds_of(own["tasks"], "own_twins")
    server = InMemoryApiServer(virtual_runtime())
    server.register(task)

    def task_of(schedule: str) -> Object:
        return decode_builtins({"metadata": {"name": "a"}, "spec": {"schedule": schedule}}, task)

    server.load(task_of("0 0 * * *"))
    assert violations(task_of("0 0 * * *")) == ()
    assert violations(task_of("x")) == (".spec.schedule must be at least 9 characters long, but is 1",)
