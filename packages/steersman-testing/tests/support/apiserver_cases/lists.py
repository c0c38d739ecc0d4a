"""Lists: selectors, versions and pages."""

from __future__ import annotations

from apiserver_cases.api import Api, ApiResponse, config_map, widget


def item_names(response: ApiResponse) -> list[str]:
    return [item["metadata"]["name"] for item in response.expect_success().body["items"]]


async def _create_labeled(api: Api) -> None:
    for name, labels in (
        ("a", {"app": "x", "tier": "web"}),
        ("b", {"app": "y"}),
        ("c", {"app": "x", "size": "5"}),
        ("d", {}),
    ):
        (await api.create("configmaps", config_map(name, labels=labels))).expect_success()


async def case_lists_are_sorted_by_name(api: Api) -> None:
    for name in ("c", "a", "b"):
        (await api.create("configmaps", config_map(name))).expect_success()
    reply = await api.list("configmaps")
    assert item_names(reply) == ["a", "b", "c"]
    assert (reply.body["kind"], reply.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(reply.resource_version) > 0


async def case_custom_resource_items_have_kinds(api: Api) -> None:
    await api.create("widgets", widget("a"))
    await api.create("configmaps", config_map("a"))
    assert (await api.list("widgets")).body["items"][0]["kind"] == "Widget"
    assert "kind" not in (await api.list("configmaps")).body["items"][0]


async def case_label_selectors(api: Api) -> None:
    await _create_labeled(api)
    for selector, expected in (
        ("app=x", ["a", "c"]),
        ("app==x,tier=web", ["a"]),
        ("app!=x", ["b", "d"]),
        ("app in (x,y)", ["a", "b", "c"]),
        ("app notin (x)", ["b", "d"]),
        ("tier", ["a"]),
        ("!app", ["d"]),
        ("app in (x), !tier", ["c"]),
        ("size>4", ["c"]),
        ("size<5", []),
        ("", ["a", "b", "c", "d"]),
    ):
        assert item_names(await api.list("configmaps", labelSelector=selector)) == expected, selector


async def case_malformed_label_selectors_are_rejected(api: Api) -> None:
    for selector in ("app in x", "=x", "a b", "app=-x-"):
        (await api.list("configmaps", labelSelector=selector)).expect_error(400, "BadRequest")


async def case_field_selectors(api: Api) -> None:
    await _create_labeled(api)
    for selector, expected in (
        ("metadata.name=b", ["b"]),
        ("metadata.name!=b", ["a", "c", "d"]),
        (f"metadata.namespace={api.namespace},metadata.name==a", ["a"]),
        ("metadata.namespace=elsewhere", []),
    ):
        assert item_names(await api.list("configmaps", fieldSelector=selector)) == expected, selector


async def case_unknown_field_selectors_are_rejected(api: Api) -> None:
    rejected = await api.list("widgets", fieldSelector="spec.size=1")
    rejected.expect_error(400, "BadRequest", "field label not supported: spec.size")
    rejected = await api.list("configmaps", fieldSelector="data.x=1")
    text = '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"'
    rejected.expect_error(400, "BadRequest", text)
    rejected = await api.list("configmaps", fieldSelector="a")
    rejected.expect_error(400, "BadRequest", "invalid selector: 'a'; can't understand 'a'")


async def case_malformed_parameters_are_rejected(api: Api) -> None:
    rejected = await api.list("configmaps", limit="x")
    rejected.expect_error(400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax')
    rejected = await api.list("configmaps", resourceVersion="x")
    text = 'invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x"'
    rejected.expect_error(400, "BadRequest", text)
    rejected = await api.list("configmaps", resourceVersionMatch="Exact")
    rejected.expect_error(422, "Invalid", "resourceVersionMatch is forbidden unless resourceVersion is provided")
    rejected = await api.list("configmaps", resourceVersion="0", resourceVersionMatch="Exact")
    rejected.expect_error(422, "Invalid", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    rejected = await api.list("configmaps", **{"continue": "abc"})
    rejected.expect_error(400, "BadRequest", "invalid continue token: continue key is not valid: ")


async def case_future_versions_fail(api: Api) -> None:
    rejected = await api.list("configmaps", resourceVersion="999999999")
    rejected.expect_error(504, "Timeout", "Timeout: Too large resource version: 999999999, current: ")
    assert rejected.causes() == [("", "ResourceVersionTooLarge")]
    assert rejected.body["details"]["retryAfterSeconds"] == 1


async def case_pages_are_one_snapshot(api: Api) -> None:
    await _create_labeled(api)
    first = await api.list("configmaps", limit="2")
    assert item_names(first) == ["a", "b"]
    assert first.metadata["remainingItemCount"] == 2
    await api.create("configmaps", config_map("c2"))
    await api.delete("configmaps", "d")
    second = await api.list("configmaps", limit="5", **{"continue": first.metadata["continue"]})
    assert item_names(second) == ["c", "d"]
    assert "continue" not in second.metadata
    assert second.resource_version == first.resource_version


async def case_lists_at_a_version(api: Api) -> None:
    await _create_labeled(api)
    then = (await api.list("configmaps")).resource_version
    await api.delete("configmaps", "a")
    exact = await api.list("configmaps", resourceVersion=then, resourceVersionMatch="Exact")
    assert item_names(exact) == ["a", "b", "c", "d"]
    assert exact.resource_version == then
    # The order matters: a list with an older version may come from a cache without the deletion.
    for query in ({}, {"resourceVersion": then, "resourceVersionMatch": "NotOlderThan"}):
        assert item_names(await api.list("configmaps", **query)) == ["b", "c", "d"]


async def case_lists_across_namespaces(api: Api) -> None:
    await api.create("widgets", widget("a", labels={"run": api.namespace}))
    reply = await api.call(
        "GET", "/apis/cases.steersman.dev/v1/widgets", None, {"labelSelector": f"run={api.namespace}"}
    )
    assert item_names(reply) == ["a"]
