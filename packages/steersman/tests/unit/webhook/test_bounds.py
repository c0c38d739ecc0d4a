"""Bounds of values without a schema."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from steersman.meta import Field, FrozenDict, FrozenStruct
from steersman.webhook.bounds import bound_violations
from steersman_manifests.crd import violations


class Port(FrozenStruct):
    number: Annotated[int, Field(gt=0, lt=65536)] = 80


class Volume(FrozenStruct):
    mount_path: str
    size: int = 1


class WebAppSpec(FrozenStruct):
    name: Annotated[str, Field(min_length=2, max_length=5, pattern="^[a-z]+$")] = "web"
    replicas: Annotated[int | None, Field(ge=1, le=9)] = None
    hosts: Annotated[tuple[Annotated[str, Field(max_length=5)], ...], Field(min_items=1, max_items=2)] = ("a",)
    ports: tuple[Port, ...] = ()
    labels: Annotated[FrozenDict[str, Annotated[str, Field(max_length=2)]], Field(max_properties=1)] = FrozenDict()
    default_port: Port | None = None
    aliases: tuple[Annotated[str, Field(max_length=2)], ...] | None = None
    zones: Annotated[tuple[str, ...], Field(list_type="set")] = ()
    volumes: Annotated[tuple[Volume, ...], Field(list_map_keys=("mountPath",))] = ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, ""),
        ({"name": "api", "replicas": 9, "hosts": ("a", "b"), "ports": (Port(number=1),)}, ""),
        ({"name": "a"}, ".name must be at least 2 characters long, but is 1"),
        ({"name": "abcdef"}, ".name must be at most 5 characters long, but is 6"),
        ({"name": "API"}, ".name must match ^[a-z]+$, but is 'API'"),
        ({"name": "api\n"}, ".name must match ^[a-z]+$, but is 'api\\n'"),
        ({"replicas": 0}, ".replicas must be at least 1, but is 0"),
        ({"replicas": 10}, ".replicas must be at most 9, but is 10"),
        ({"hosts": ()}, ".hosts must be at least 1 items long, but is 0"),
        ({"hosts": ("a", "b", "c")}, ".hosts must be at most 2 items long, but is 3"),
        ({"hosts": ("orders",)}, ".hosts[0] must be at most 5 characters long, but is 6"),
        ({"ports": (Port(), Port(number=0))}, ".ports[1].number must be greater than 0, but is 0"),
        ({"default_port": Port(number=65536)}, ".defaultPort.number must be less than 65536, but is 65536"),
        ({"aliases": ("a", "abc")}, ".aliases[1] must be at most 2 characters long, but is 3"),
        ({"zones": ("a", "b", "a")}, ".zones[2] is a duplicate: a"),
        (
            {"volumes": (Volume(mount_path="/data"), Volume(mount_path="/data", size=2))},
            ".volumes[1] is a duplicate: {'mountPath': '/data'}",
        ),
        ({"labels": FrozenDict({"a": "abc"})}, ".labels.a must be at most 2 characters long, but is 3"),
        ({"labels": FrozenDict({"a": "", "b": ""})}, ".labels must be at most 1 keys long, but is 2"),
    ],
)
def test_bound_violations_agree_with_schema(fields: dict[str, Any], message: str) -> None:
    spec = WebAppSpec(**fields)
    expected = () if not message else (message,)
    assert tuple(bound_violations(spec, WebAppSpec)) == expected
    assert len(violations(spec)) == len(expected)
