"""Query parameters and their validation."""

from __future__ import annotations

import asyncio

from apiserver_cases.api import Api, ApiResponse, Json, config_map, error_cases
from apiserver_cases.subresources import scaled

_NON_NUMBERS = ("abc", "1.5", "", "0x1", " 1", "1,2")


async def _list(api: Api, **query: str) -> ApiResponse:
    return await api.call("GET", api.path("configmaps"), None, query)


async def case_malformed_numbers_are_rejected(api: Api) -> None:
    for value in _NON_NUMBERS:
        text = f'strconv.ParseInt: parsing "{value}": invalid syntax'
        (await _list(api, limit=value)).expect_error(400, "BadRequest", text)
        (await _list(api, timeoutSeconds=value)).expect_error(400, "BadRequest", text)
        (await api.delete("configmaps", "no", None, gracePeriodSeconds=value)).expect_error(400, "BadRequest", text)
        collection = await api.call("DELETE", api.path("configmaps"), None, {"gracePeriodSeconds": value})
        collection.expect_error(400, "BadRequest", text)
    for name in ("limit", "timeoutSeconds"):
        (await api.call("DELETE", api.path("configmaps"), None, {name: "abc"})).expect_error(400, "BadRequest")
        (await api.call("GET", api.path("scaleds"), None, {name: "abc"})).expect_error(400, "BadRequest")
    (await _list(api, limit="9999999999999999999")).expect_error(400, "BadRequest", "value out of range")


async def case_negative_limit_is_unlimited(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    assert len((await _list(api, limit="-1")).expect_success().body["items"]) == 1
    (await _list(api, timeoutSeconds="-1")).expect_success()
    (await api.delete("configmaps", "no", None, gracePeriodSeconds="-1")).expect_error(404, "NotFound")


async def case_watch_numbers_are_validated(api: Api) -> None:
    for query in ({"timeoutSeconds": "abc"}, {"timeoutSeconds": "1", "limit": "abc"}):
        rejected = await api.call("GET", api.path("configmaps"), None, {"watch": "true", **query})
        rejected.expect_error(400, "BadRequest", 'strconv.ParseInt: parsing "abc": invalid syntax')


async def case_booleans_are_true_unless_false(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    for value in ("abc", "True", ""):
        async with asyncio.timeout(20):
            (event,) = await api.events("configmaps", 1, watch=value)
        assert event["type"] == "ADDED"
        query = {"sendInitialEvents": value, "allowWatchBookmarks": value, "resourceVersionMatch": "NotOlderThan"}
        events = await api.events("configmaps", 2, **query)
        assert [e["type"] for e in events] == ["ADDED", "BOOKMARK"]
    for value in ("False", "0"):
        assert (await _list(api, watch=value)).expect_success().body["kind"] == "ConfigMapList"


async def case_force_accepts_any_word(api: Api) -> None:
    (await api.apply("configmaps", config_map("a", {"k": "v"}), "first")).expect_success()
    theirs = config_map("a", {"k": "w"})
    content_type = "application/apply-patch+yaml"
    for value, code in (("no", 200), ("", 200), ("0", 409), ("FALSE", 409)):
        query = {"fieldManager": "second", "force": value, "dryRun": "All"}
        path = api.path("configmaps", "a")
        assert (await api.call("PATCH", path, theirs, query, content_type)).code == code
        rejected = await api.merge("configmaps", "a", {}, force=value)
        rejected.expect_error(422, "Invalid", "force: Forbidden: may not be specified for non-apply patch")


async def case_orphan_dependents_accepts_any_word(api: Api) -> None:
    (await api.create("scaleds", scaled("a"))).expect_success()
    deleting = (await api.delete("scaleds", "a", None, orphanDependents="abc")).expect_success()
    assert deleting.metadata["finalizers"] == ["orphan"]


async def case_dry_run_must_be_all(api: Api) -> None:
    for value in ("all", "true", "", "All,All"):
        text = f'dryRun: Unsupported value: ["{value}"]: supported values: "All"'
        (await api.create("configmaps", config_map("a"), dryRun=value)).expect_error(422, "Invalid", text)
        (await api.delete("configmaps", "no", None, dryRun=value)).expect_error(422, "Invalid", text)


async def case_unknown_parameters_are_ignored(api: Api) -> None:
    (await api.create("configmaps", config_map("a"), force="abc")).expect_success()
    for query in ({"pretty": "abc"}, {"limit": "abc"}, {"resourceVersionMatch": "Odd"}):
        (await api.call("GET", api.path("configmaps", "a"), None, query)).expect_success()
    (await _list(api, allowWatchBookmarks="abc", pretty="abc")).expect_success()
    rejected = await _list(api, sendInitialEvents="false")
    rejected.expect_error(422, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")


async def case_delete_option_types_are_validated(api: Api) -> None:
    for options, text in error_cases(
        ({"gracePeriodSeconds": "x"}, "Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ({"dryRun": "All"}, "Go struct field DeleteOptions.dryRun of type []string"),
        ({"orphanDependents": "x"}, "Go struct field DeleteOptions.orphanDependents of type bool"),
        ({"preconditions": "x"}, "Go struct field DeleteOptions.preconditions of type v1.Preconditions"),
        ({"preconditions": {"uid": 1}}, "Go struct field Preconditions.preconditions.uid of type types.UID"),
        ({"propagationPolicy": 1}, "Go struct field DeleteOptions.propagationPolicy of type v1.DeletionPropagation"),
        ({"kind": "Odd"}, 'no kind "Odd" is registered for version "meta.k8s.io/v1" in scheme'),
        ({"kind": "ConfigMap", "apiVersion": "v1"}, 'no kind "ConfigMap" is registered for version "v1" in scheme'),
    ):
        (await api.delete("configmaps", "no", options)).expect_error(400, "BadRequest", text)
    listed = await api.call("DELETE", api.path("configmaps", "no"), [])
    listed.expect_error(
        400, "BadRequest", "couldn't get version/kind; json parse error: json: cannot unmarshal array"
    )
    named: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "odd": 1}
    (await api.delete("configmaps", "no", named)).expect_error(404, "NotFound")


async def case_delete_body_overrides_query(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    query = {"gracePeriodSeconds": "abc", "dryRun": "Odd"}
    (await api.call("DELETE", api.path("configmaps", "a"), {"gracePeriodSeconds": 5}, query)).expect_success()
    (await api.get("configmaps", "a")).expect_error(404, "NotFound")


async def case_body_name_must_match_url(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    nameless: Json = {"apiVersion": "v1", "kind": "ConfigMap"}
    text = "the name of the object (a based on URL) was undeterminable: name must be provided"
    path = api.path("configmaps", "a")
    (await api.call("PUT", path, nameless)).expect_error(400, "BadRequest", text)
    (await api.merge("configmaps", "a", {"metadata": {"name": None}})).expect_error(400, "BadRequest", text)
    query = {"fieldManager": "tester"}
    (await api.call("PATCH", path, nameless, query, "application/apply-patch+yaml")).expect_success()
    applied = await api.call("PATCH", f"{path}b", nameless, query, "application/apply-patch+yaml")
    applied.expect_error(400, "BadRequest", text.replace("(a ", "(ab "))


async def case_resource_version_must_be_a_number(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    rejected = await api.put("configmaps", config_map("a", resourceVersion="x"))
    rejected.expect_error(500, "", 'strconv.ParseUint: parsing "x": invalid syntax')


async def case_malformed_versions_are_rejected(api: Api) -> None:
    (await api.create("configmaps", config_map("a"))).expect_success()
    invalid, large = "invalid syntax", "value out of range"
    for version, text in (
        ("²", invalid),
        ("\u0661", invalid),
        ("-1", invalid),
        ("9" * 25, large),
        ("9" * 5000, large),
    ):
        text = f'strconv.ParseUint: parsing "{version}": {text}'
        (await _list(api, resourceVersion=version)).expect_error(400, "BadRequest", text)
        query = {"resourceVersion": version}
        (await api.call("GET", api.path("configmaps", "a"), None, query)).expect_error(500, "", text)
        (await _list(api, watch="true", timeoutSeconds="1", resourceVersion=version)).expect_error(500, "", text)
        (await api.put("configmaps", config_map("a", resourceVersion=version))).expect_error(500, "", text)
        (await api.create("configmaps", config_map("b", resourceVersion=version), dryRun="All")).expect_success()
    (await _list(api, limit="9" * 5000)).expect_error(400, "BadRequest", "value out of range")


async def case_malformed_continue_tokens_are_rejected(api: Api) -> None:
    for token in ("é", "²", "abc"):
        (await _list(api, **{"continue": token})).expect_error(400, "BadRequest", "continue key is not valid: ")


async def case_a_watch_does_not_continue(api: Api) -> None:
    rejected = await _list(api, watch="true", timeoutSeconds="1", **{"continue": "abc"})
    rejected.expect_error(422, "Invalid", "resourceVersionMatch is forbidden when continue is provided")
