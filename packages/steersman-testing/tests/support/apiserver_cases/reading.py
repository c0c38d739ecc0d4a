"""Get and list with ``resourceVersion``, ``limit`` and ``continue``."""

from __future__ import annotations

from apiserver_cases.api import Api, ApiResponse, config_map, widget


def _item_names(response: ApiResponse) -> list[str]:
    return [item["metadata"]["name"] for item in response.expect_success().body["items"]]


async def _create_three(api: Api) -> None:
    for name in ("a", "b", "c"):
        (await api.create("configmaps", config_map(name, labels={"l": name}))).expect_success()


async def case_get_at_any_version_succeeds(api: Api) -> None:
    created = await api.create("configmaps", config_map("a", {"k": "v"}))
    # The order matters: at "0" a server may respond from a cache without the object.
    for version in (created.resource_version, "0"):
        actual = await api.call("GET", api.path("configmaps", "a"), None, {"resourceVersion": version})
        assert actual.expect_success().body == created.body


async def case_get_at_future_version_fails(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    rejected = await api.call("GET", api.path("configmaps", "a"), None, {"resourceVersion": "999999999"})
    rejected.expect_error(504, "Timeout", "Too large resource version: 999999999, current: ")


async def case_get_at_malformed_version_is_rejected(api: Api) -> None:
    await api.create("configmaps", config_map("a"))
    rejected = await api.call("GET", api.path("configmaps", "a"), None, {"resourceVersion": "x"})
    assert rejected.code >= 400
    assert 'Invalid value: "x"' in rejected.message


async def case_empty_list_has_items(api: Api) -> None:
    for plural in ("configmaps", "widgets"):
        assert (await api.list(plural)).expect_success().body["items"] == []


async def case_missing_namespace_is_empty(api: Api) -> None:
    reply = await api.call("GET", "/api/v1/namespaces/nowhere-to-be-found/configmaps")
    assert _item_names(reply) == []


async def case_list_version_includes_last_write(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    assert int((await api.list("configmaps")).resource_version) >= int(created.resource_version)


async def case_lists_without_a_version_see_every_write(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create("configmaps", config_map(name))
        assert name in _item_names(await api.list("configmaps"))
    await api.delete("configmaps", "b")
    assert _item_names(await api.list("configmaps")) == ["a", "c"]


async def case_lists_not_older_than_the_last_write_see_it(api: Api) -> None:
    created = await api.create("configmaps", config_map("a"))
    for query in ({}, {"resourceVersionMatch": "NotOlderThan"}):
        assert _item_names(await api.list("configmaps", resourceVersion=created.resource_version, **query)) == ["a"]


async def case_lists_at_any_version(api: Api) -> None:
    for query in ({}, {"resourceVersionMatch": "NotOlderThan"}):
        reply = await api.list("configmaps", resourceVersion="0", **query)
        assert isinstance(reply.expect_success().body["items"], list)


async def case_lists_at_an_exact_version_show_old_contents(api: Api) -> None:
    await api.create("configmaps", config_map("a", {"k": "old"}))
    then = (await api.list("configmaps")).resource_version
    await api.merge("configmaps", "a", {"data": {"k": "new"}})
    await api.create("configmaps", config_map("b"))
    exact = (await api.list("configmaps", resourceVersion=then, resourceVersionMatch="Exact")).expect_success()
    assert [i["data"] for i in exact.body["items"]] == [{"k": "old"}]
    assert exact.resource_version == then


async def case_lists_at_an_exact_version_are_selected(api: Api) -> None:
    await _create_three(api)
    then = (await api.list("configmaps")).resource_version
    await api.merge("configmaps", "a", {"metadata": {"labels": {"l": "z"}}})
    query = {"resourceVersion": then, "resourceVersionMatch": "Exact", "labelSelector": "l=a"}
    assert _item_names(await api.list("configmaps", **query)) == ["a"]
    assert _item_names(await api.list("configmaps", labelSelector="l=a")) == []


async def case_unknown_matches_are_rejected(api: Api) -> None:
    rejected = await api.list("configmaps", resourceVersion="1", resourceVersionMatch="Odd")
    rejected.expect_error(422, "Invalid", 'resourceVersionMatch: Unsupported value: "Odd": supported values: "')


async def case_pages_of_one(api: Api) -> None:
    await _create_three(api)
    found: list[str] = []
    query: dict[str, str] = {}
    while True:
        page = await api.list("configmaps", limit="1", **query)
        found += _item_names(page)
        if not page.metadata.get("continue"):
            break
        query = {"continue": page.metadata["continue"]}
    assert found == ["a", "b", "c"]
    assert "remainingItemCount" not in page.metadata


async def case_complete_page_has_no_continue(api: Api) -> None:
    await _create_three(api)
    for limit in ("3", "4", "0"):
        page = (await api.list("configmaps", limit=limit)).expect_success()
        assert _item_names(page) == ["a", "b", "c"]
        assert not {"continue", "remainingItemCount"} & set(page.metadata)


async def case_selected_pages_have_no_remaining_count(api: Api) -> None:
    await _create_three(api)
    page = (await api.list("configmaps", limit="1", labelSelector="l in (a,c)")).expect_success()
    assert _item_names(page) == ["a"]
    assert page.metadata["continue"]
    assert "remainingItemCount" not in page.metadata
    query = {"continue": page.metadata["continue"], "labelSelector": "l in (a,c)"}
    assert _item_names(await api.list("configmaps", limit="5", **query)) == ["c"]


async def case_pages_of_a_custom_resource(api: Api) -> None:
    for name in ("a", "b", "c"):
        (await api.create("widgets", widget(name))).expect_success()
    first = (await api.list("widgets", limit="2")).expect_success()
    assert (_item_names(first), first.metadata["remainingItemCount"]) == (["a", "b"], 1)
    rest = await api.list("widgets", limit="2", **{"continue": first.metadata["continue"]})
    assert _item_names(rest) == ["c"]


async def case_pages_across_namespaces(api: Api) -> None:
    other = f"{api.namespace}-b"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}}
    (await api.call("POST", "/api/v1/namespaces", body)).expect_success()
    labels = {"run": api.namespace}
    for namespace in (other, api.namespace):
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        (await api.call("POST", path, config_map("a", labels=labels))).expect_success()
    query = {"labelSelector": f"run={api.namespace}", "limit": "1"}
    first = (await api.call("GET", "/api/v1/configmaps", None, query)).expect_success()
    rest = await api.call("GET", "/api/v1/configmaps", None, {**query, "continue": first.metadata["continue"]})
    found = [item["metadata"]["namespace"] for page in (first, rest) for item in page.expect_success().body["items"]]
    # Keys are compared as text, "namespace/name": the hyphen precedes the slash.
    assert found == [other, api.namespace]


async def case_continued_list_rejects_resource_version(api: Api) -> None:
    await _create_three(api)
    page = await api.list("configmaps", limit="1")
    token = page.metadata["continue"]
    rejected = await api.list("configmaps", resourceVersion=page.resource_version, **{"continue": token})
    rejected.expect_error(400, "BadRequest", "specifying resource version is not allowed when using continue")
    rejected = await api.list(
        "configmaps", resourceVersion=page.resource_version, resourceVersionMatch="Exact", **{"continue": token}
    )
    rejected.expect_error(422, "Invalid", "resourceVersionMatch is forbidden when continue is provided")


async def case_a_first_page_at_an_exact_version(api: Api) -> None:
    await _create_three(api)
    then = (await api.list("configmaps")).resource_version
    await api.delete("configmaps", "b")
    page = await api.list("configmaps", limit="1", resourceVersion=then, resourceVersionMatch="Exact")
    assert (_item_names(page), page.resource_version) == (["a"], then)
    rest = await api.list("configmaps", **{"continue": page.metadata["continue"]})
    assert (_item_names(rest), rest.resource_version) == (["b", "c"], then)


async def case_a_list_of_one_name(api: Api) -> None:
    await _create_three(api)
    reply = await api.list("configmaps", fieldSelector="metadata.name=b", limit="5")
    assert _item_names(reply) == ["b"]
    assert "continue" not in reply.metadata


async def case_field_selectors_of_pods_and_secrets(api: Api) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.create("serviceaccounts", account)
    for name, node in (("a", "one"), ("b", "two")):
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "i:1"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        (await api.create("pods", body)).expect_success()
    await api.merge("pods", "a", {"status": {"phase": "Running"}}, "status")
    assert _item_names(await api.list("pods", fieldSelector="spec.nodeName=one")) == ["a"]
    assert _item_names(await api.list("pods", fieldSelector="status.phase!=Running")) == ["b"]
    assert _item_names(await api.list("pods", fieldSelector="status.phase=Running,spec.nodeName=two")) == []
    assert _item_names(await api.list("pods", fieldSelector="spec.restartPolicy=Always")) == ["a", "b"]
    rejected = await api.list("pods", fieldSelector="spec.odd=1")
    rejected.expect_error(400, "BadRequest", "field label not supported: spec.odd")
    for name, kind in (("a", "Opaque"), ("b", "example.com/key")):
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind}
        (await api.create("secrets", body)).expect_success()
    assert _item_names(await api.list("secrets", fieldSelector="type=example.com/key")) == ["b"]


async def case_fields_of_a_definition_can_be_selected_by(api: Api) -> None:
    for name, colour, size in (("a", "red", 1), ("b", "blue", 2)):
        body = {"apiVersion": "cases.steersman.dev/v1", "kind": "Sample", "metadata": {"name": name}}
        (await api.create("samples", {**body, "spec": {"colour": colour, "size": size}})).expect_success()
    assert _item_names(await api.list("samples", fieldSelector="spec.colour=red")) == ["a"]
    assert _item_names(await api.list("samples", fieldSelector="spec.size!=1")) == ["b"]
    rejected = await api.list("samples", fieldSelector="spec.note=x")
    rejected.expect_error(400, "BadRequest", "field label not supported: spec.note")


async def case_a_list_of_a_namespaced_path_needs_a_namespaced_kind(api: Api) -> None:
    reply = await api.call("GET", f"/api/v1/namespaces/{api.namespace}/nodes")
    reply.expect_error(404, "NotFound", "the server could not find the requested resource")
    reply = await api.call("GET", "/api/v1/configmaps/a")
    assert reply.code == 404


async def case_empty_selection_has_server_version(api: Api) -> None:
    await _create_three(api)
    last = await api.create("configmaps", config_map("d"))
    assert int((await api.list("configmaps", labelSelector="l=a")).resource_version) >= int(last.resource_version)
