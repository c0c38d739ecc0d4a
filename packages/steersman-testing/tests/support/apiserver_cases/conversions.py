"""Custom resources with several versions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json
from apiserver_cases.apply import fields_by_manager
from apiserver_cases.waiting import wait_until_served

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_FIELDS = {"v1": ("watts", "integer"), "v2": ("power", "string")}


def _version(name: str, **more: Any) -> Json:
    field, kind = _FIELDS[name]
    properties = {field: {"type": kind}, "colour": {"type": "string"}}
    spec = {"type": "object", "properties": properties}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {"name": name, "served": True, "storage": name == "v1", "schema": schema, **more}


def _group(api: Api) -> str:
    return f"{api.namespace}.dev"


def _path(api: Api, version: str, name: str = "") -> str:
    path = f"/apis/{_group(api)}/{version}/namespaces/{api.namespace}/webapps"
    return f"{path}/{name}" if name else path


def _lamp(api: Api, version: str, **spec: Any) -> Json:
    return {"apiVersion": f"{_group(api)}/{version}", "kind": "WebApp", "metadata": {"name": "a"}, "spec": spec}


@asynccontextmanager
async def _served_lamps(api: Api, conversion: Json) -> AsyncGenerator[None]:
    """Serve webapps with two versions in their own group during the block."""
    name = f"webapps.{_group(api)}"
    names = {"plural": "webapps", "kind": "WebApp"}
    spec = {"group": _group(api), "scope": "Namespaced", "names": names, "conversion": conversion}
    body = {"metadata": {"name": name}, "spec": {**spec, "versions": [_version("v1"), _version("v2")]}}
    (await api.call("POST", _CRDS, body)).expect_success()
    try:
        await wait_until_served(api, _path(api, "v1"))
        await wait_until_served(api, _path(api, "v2"))
        yield
    finally:
        (await api.call("DELETE", f"{_CRDS}/{name}")).expect_success()


def _webhook(config: Json) -> Json:
    return {"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]}}


def _converted(obj: Json, expected: str) -> Json:
    # The server also converts objects without the fields that an apply no longer declares.
    spec = dict(obj.get("spec") or {})
    if "power" in spec:
        spec["watts"] = int(spec.pop("power").removesuffix("W"))
    elif "watts" in spec:
        spec["power"] = f"{spec.pop('watts')}W"
    return {**obj, "apiVersion": expected, "spec": spec}


async def _convert(review: Json) -> Json:
    request = review["request"]
    objects = [_converted(o, request["desiredAPIVersion"]) for o in request["objects"]]
    response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
    return {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}


async def _fail_conversion(review: Json) -> Json:
    result = {"status": "Failure", "message": "no webapps today"}
    response = {"uid": review["request"]["uid"], "result": result}
    return {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}


async def case_a_webhook_converts(api: Api) -> None:
    async with _served_lamps(api, _webhook(await api.serve_webhook(_convert))):
        created = (await api.call("POST", _path(api, "v2"), _lamp(api, "v2", power="60W"))).expect_success()
        assert (created.body["apiVersion"], created.body["spec"]) == (f"{_group(api)}/v2", {"power": "60W"})
        assert created.metadata["generation"] == 1
        read = (await api.call("GET", _path(api, "v1", "a"))).expect_success()
        assert (read.body["apiVersion"], read.body["spec"]) == (f"{_group(api)}/v1", {"watts": 60})
        assert read.resource_version == created.resource_version
        patch = {"spec": {"watts": 40}}
        path = _path(api, "v1", "a")
        (await api.call("PATCH", path, patch, {}, "application/merge-patch+json")).expect_success()
        listed = (await api.call("GET", _path(api, "v2"))).expect_success()
        assert [i["spec"] for i in listed.body["items"]] == [{"power": "40W"}]
        assert listed.body["items"][0]["metadata"]["generation"] == 2
        (await api.call("DELETE", _path(api, "v2", "a"))).expect_success()
        (await api.call("GET", _path(api, "v1", "a"))).expect_error(404, "NotFound")


async def case_webhook_rejects_conversion(api: Api) -> None:
    async with _served_lamps(api, _webhook(await api.serve_webhook(_fail_conversion))):
        rejected = await api.call("POST", _path(api, "v2"), _lamp(api, "v2", power="60W"))
        assert rejected.code == 500
        text = f"conversion webhook for {_group(api)}/v2, Kind=WebApp failed: no webapps today"
        assert rejected.message == text
        (await api.call("POST", _path(api, "v1"), _lamp(api, "v1", watts=60))).expect_success()
        assert (await api.call("GET", _path(api, "v2", "a"))).code == 500
        (await api.call("GET", _path(api, "v1", "a"))).expect_success()


async def case_conversion_strategy_none(api: Api) -> None:
    """Without a conversion, fields outside of the schema are pruned."""
    async with _served_lamps(api, {"strategy": "None"}):
        (await api.call("POST", _path(api, "v1"), _lamp(api, "v1", watts=60))).expect_success()
        read = (await api.call("GET", _path(api, "v2", "a"))).expect_success()
        assert (read.body["apiVersion"], read.body["spec"]) == (f"{_group(api)}/v2", {})
        assert (await api.call("GET", _path(api, "v1", "a"))).body["spec"] == {"watts": 60}


async def _apply(api: Api, version: str, manager: str, labels: Json | None = None, **spec: Any) -> ApiResponse:
    query, body = {"fieldManager": manager, "force": "true"}, _lamp(api, version, **spec)
    if labels:
        body["metadata"]["labels"] = labels
    applied = await api.call("PATCH", _path(api, version, "a"), body, query, "application/apply-patch+yaml")
    return applied.expect_success()


async def case_applier_keeps_a_renamed_field(api: Api) -> None:
    async with _served_lamps(api, _webhook(await api.serve_webhook(_convert))):
        await _apply(api, "v1", "one", watts=60, colour="red")
        changed = await _apply(api, "v2", "one", power="60W", colour="blue")
        assert changed.body["spec"] == {"power": "60W", "colour": "blue"}
        assert fields_by_manager(changed) == {("one", "Apply", ""): {"f:spec": {"f:colour": {}, "f:power": {}}}}
        assert (await api.call("GET", _path(api, "v1", "a"))).body["spec"] == {"watts": 60, "colour": "blue"}


async def case_applier_drops_a_renamed_field(api: Api) -> None:
    async with _served_lamps(api, _webhook(await api.serve_webhook(_convert))):
        await _apply(api, "v1", "one", watts=60, colour="red")
        changed = await _apply(api, "v2", "one", colour="blue")
        assert changed.body["spec"] == {"colour": "blue"}
        assert (await api.call("GET", _path(api, "v1", "a"))).body["spec"] == {"colour": "blue"}


async def case_renamed_field_of_another_applier_stays(api: Api) -> None:
    async with _served_lamps(api, _webhook(await api.serve_webhook(_convert))):
        await _apply(api, "v1", "one", watts=60, colour="red")
        await _apply(api, "v1", "two", watts=60)
        changed = await _apply(api, "v2", "one", colour="blue")
        assert changed.body["spec"] == {"power": "60W", "colour": "blue"}
        assert fields_by_manager(changed) == {
            ("one", "Apply", ""): {"f:spec": {"f:colour": {}}},
            ("two", "Apply", ""): {"f:spec": {"f:watts": {}}},
        }


async def case_renamed_field_of_an_updater_stays(api: Api) -> None:
    async with _served_lamps(api, _webhook(await api.serve_webhook(_convert))):
        await _apply(api, "v2", "one", power="60W", colour="red")
        query, kind = {"fieldManager": "two"}, "application/merge-patch+json"
        (await api.call("PATCH", _path(api, "v1", "a"), {"spec": {"watts": 40}}, query, kind)).expect_success()
        changed = await _apply(api, "v2", "one", colour="red")
        assert changed.body["spec"] == {"power": "40W", "colour": "red"}
        changed = await _apply(api, "v1", "one", colour="red")
        assert changed.body["spec"] == {"watts": 40, "colour": "red"}


async def case_applier_changes_its_version_and_labels(api: Api) -> None:
    async with _served_lamps(api, _webhook(await api.serve_webhook(_convert))):
        await _apply(api, "v1", "one", {"a": "1", "b": "2"}, watts=60)
        changed = await _apply(api, "v2", "one", {"a": "1", "c": "3"}, power="60W")
        assert changed.metadata["labels"] == {"a": "1", "c": "3"}
