"""Reviews whose objects exceed the limits of their schema."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest

from steersman.manager import Manager
from steersman.meta import Field, FrozenDict, FrozenStruct, Resource, Spec, Status, resource
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

MUTATE, VALIDATE = "/mutate-example-com-v1-stall", "/validate-example-com-v1-stall"

OVERSIZED: list[tuple[str, Any, str]] = [
    ("name", "a" * 6, ".spec.name must be at most 5 characters long, but is 6"),
    ("shelves", [{}] * 100_000, ".spec.shelves must be at most 2 items long, but is 100000"),
    ("shelves", [{"label": "long"}], ".spec.shelves[0].label must be at most 3 characters long, but is 4"),
    ("prices", {"a": 1, "b": 2}, ".spec.prices must be at most 1 keys long, but is 2"),
]


class Shelf(FrozenStruct):
    label: Annotated[str, Field(max_length=3)] = ""


class StallSpec(Spec):
    name: Annotated[str, Field(min_length=2, max_length=5)] = ""
    shelves: Annotated[tuple[Shelf, ...], Field(max_items=2)] = ()
    prices: Annotated[FrozenDict[str, int], Field(max_properties=1)] = FrozenDict()


@resource(group="example.com", version="v1")
class Stall(Resource[StallSpec, Status]):
    """A stall."""


class Reviews:
    """A manager with a webhook that counts calls of handlers."""

    def __init__(self) -> None:
        runtime = virtual_runtime()
        self.calls = 0
        self._manager = Manager(InMemoryApiServer(runtime), runtime=runtime)
        self._manager.webhook(Stall).defaults(self._default).validates(self._validate)

    def _default(self, stall: Stall) -> Stall:
        self.calls += 1
        return stall

    def _validate(self, _stall: Stall, _old: Stall | None) -> list[Any]:
        self.calls += 1
        return []

    async def post(self, path: str, spec: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
        operation = "CREATE" if old is None else "UPDATE"
        request = {"uid": "1", "operation": operation, "object": _stall(spec)}
        if old is not None:
            request["oldObject"] = _stall(old)
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        response = await self._manager.webhooks.handle(path, "", json.dumps(review).encode())
        assert response.status == 200
        return json.loads(response.body)["response"]


def _stall(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Stall", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize("path", [MUTATE, VALIDATE])
@pytest.mark.parametrize(("field", "value", "message"), OVERSIZED)
@virtual_time
async def test_review_over_schema_limit_reaches_no_handler(path: str, field: str, value: Any, message: str) -> None:
    reviews = Reviews()
    response = await reviews.post(path, {field: value})
    assert (response["allowed"], response["status"]["code"]) == (False, 422)
    assert response["status"]["message"] == f"object exceeds a limit of its schema: {message}"
    assert reviews.calls == 0


@virtual_time
async def test_update_may_keep_sizes_of_stored_object() -> None:
    reviews = Reviews()
    old: dict[str, Any] = {"name": "stored", "shelves": [{}, {}, {}]}
    assert (await reviews.post(VALIDATE, {**old, "prices": {"a": 1}}, old))["allowed"]
    assert not (await reviews.post(VALIDATE, {**old, "shelves": [{}] * 4}, old))["allowed"]


@virtual_time
async def test_defaulter_may_fill_what_is_too_short() -> None:
    assert (await Reviews().post(MUTATE, {"name": "a"}))["allowed"]
