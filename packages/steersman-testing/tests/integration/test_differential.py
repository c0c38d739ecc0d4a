"""Random requests get equal responses from both servers.

There are a few fixed examples. ``DIFFERENTIAL`` sets the number of new random ones, such as 2000.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver_cases import CRDS
from apiserver_cases.api import Api, ApiResponse, Json, config_map, deployment, widget
from apiserver_cases.servers import CaseResult, new_namespace, run_in_memory, run_on_real_server
from apiserver_cases.transcript import difference
from steersman.client import HttpRequest, connect
from steersman_testing.envtest import Envtest

EXAMPLES = int(os.environ.get("DIFFERENTIAL", "0"))
KINDS = ("configmaps", "deployments", "widgets")
NAMES = ("a", "b")
MANAGERS = ("one", "two")
LAST = "zz-last"


@dataclass(frozen=True, slots=True)
class Step:
    """A request.

    Attributes:
        verb: ``create``, ``put``, ``delete``, ``list``, ``pages``, or the kind of a patch.
        body: body of a write, or the options of a deletion.
        version: index of a returned version, from the last one. None for no version.
        stale_uid: whether a deletion has a precondition with another UID.
    """

    verb: str
    plural: str
    name: str = ""
    body: Any = None
    query: tuple[tuple[str, str], ...] = ()
    version: int | None = None
    stale_uid: bool = False


@dataclass(slots=True)
class _Run:
    """A sequence of requests on one server."""

    api: Api
    versions: list[str] = field(default_factory=lambda: ["0"])
    uids: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def version(self, step: Step) -> str | None:
        return None if step.version is None else self.versions[-1 - step.version % len(self.versions)]

    async def execute(self, step: Step) -> None:
        api, query = self.api, dict(step.query)
        match step.verb:
            case "create":
                self._record_versions(step, await api.create(step.plural, step.body, **query))
            case "put":
                self._record_versions(step, await api.put(step.plural, self._versioned(step), **query))
            case "apply":
                path, kind = api.path(step.plural, step.name), "application/apply-patch+yaml"
                self._record_versions(step, await api.call("PATCH", path, self._versioned(step), query, kind))
            case "delete":
                await api.delete(step.plural, step.name, self._options(step))
            case "list":
                if version := self.version(step):
                    # A list that may be older can come from a cache, which is up to date after this list.
                    await api.list(step.plural)
                    query["resourceVersion"] = version
                await api.list(step.plural, **query)
            case "pages":
                await self._pages(step, query)
            case patch:
                path, kind = api.path(step.plural, step.name), f"application/{patch}"
                self._record_versions(step, await api.call("PATCH", path, step.body, query, kind))

    def _record_versions(self, step: Step, response: ApiResponse) -> None:
        metadata: Json = response.body.get("metadata") or {}
        # The version of a list includes changes of other clients, so it is not used again.
        if response.code < 300 and "uid" in metadata and "resourceVersion" in metadata:
            self.versions.append(metadata["resourceVersion"])
            self.uids[step.plural, metadata["name"]] = metadata["uid"]

    def _versioned(self, step: Step) -> Json:
        version = self.version(step)
        metadata = step.body["metadata"] | ({"resourceVersion": version} if version else {})
        return {**step.body, "metadata": metadata}

    def _options(self, step: Step) -> Json:
        uid = self.uids.get((step.plural, step.name), "none")
        preconditions = {"uid": "other" if step.stale_uid else uid}
        if version := self.version(step):
            preconditions["resourceVersion"] = version
        return {**step.body, "preconditions": preconditions}

    async def _pages(self, step: Step, query: dict[str, str]) -> None:
        for _ in range(len(NAMES) + 1):
            page = await self.api.list(step.plural, **query)
            if not (token := page.metadata.get("continue")):
                return
            query = {**query, "continue": token}

    async def watch(self, plural: str, since: str) -> None:
        """Return all changes of a kind since a version."""
        body = {"configmaps": config_map, "deployments": deployment, "widgets": widget}[plural](LAST)
        (await self.api.create(plural, body)).expect_success()
        query = {"watch": "true", "resourceVersion": since, "timeoutSeconds": "10"}
        request = HttpRequest(method="GET", path=self.api.path(plural), query=query, timeout=30)
        async with self.api.transport.stream(request) as lines:
            async for line in lines:
                if f'"name":"{LAST}"'.encode() in line:
                    return


def _bodies(plural: str, name: str) -> st.SearchStrategy[Json]:
    labels = st.dictionaries(st.sampled_from(("l", "m")), st.sampled_from(("1", "2")), max_size=2)
    finalizers = st.sampled_from(([], [], ["example.com/hold"]))
    match plural:
        case "configmaps":
            data = st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), max_size=3)
            content = data.map(_data)
        case "widgets":
            parts = st.lists(st.sampled_from("pq"), unique=True, max_size=2)
            spec: dict[str, st.SearchStrategy[Any]] = {"size": st.integers(-1, 3)}
            optional: dict[str, st.SearchStrategy[Any]] = {
                "mode": st.sampled_from(("fast", "safe", "odd")),
                "limits": st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), max_size=2),
                "note": st.sampled_from((None, "text")),
                "parts": parts.map(lambda names: [{"name": n} for n in names]),
                "tags": st.lists(st.sampled_from("tu"), unique=True, max_size=2),
                "steps": st.lists(st.sampled_from("vw"), max_size=2),
                "rollout": st.sampled_from(({}, {"pause": True}, {"pace": "quick"})),
            }
            content = st.fixed_dictionaries(spec, optional=optional).map(lambda s: {"spec": s})
        case _:
            replicas, image = st.integers(-1, 3), st.sampled_from(("app:1", "app:2"))
            content = st.builds(_deployment_content, replicas, image)
    shell = {"configmaps": config_map, "deployments": deployment, "widgets": widget}[plural](name)
    return st.builds(_whole, st.just(shell), content, labels, finalizers)


def _data(data: dict[str, str]) -> Json:
    return {"data": data}


def _deployment_content(replicas: int, image: str) -> Json:
    body = deployment("a", replicas=replicas)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return {"spec": body["spec"]}


def _whole(shell: Json, content: Json, labels: dict[str, str], finalizers: list[str]) -> Json:
    metadata: Json = {"name": shell["metadata"]["name"]}
    if labels:
        metadata["labels"] = labels
    if finalizers:
        metadata["finalizers"] = finalizers
    return {"apiVersion": shell["apiVersion"], "kind": shell["kind"], "metadata": metadata, **content}


def _patches(plural: str) -> st.SearchStrategy[tuple[str, Any]]:
    labels = {"metadata": {"labels": {"l": "2", "m": None}}}
    release = {"metadata": {"finalizers": None}}
    add = [{"op": "add", "path": "/metadata/labels", "value": {"l": "1"}}]
    drop = [{"op": "remove", "path": "/metadata/labels/l"}]
    found: list[tuple[str, Any]] = [
        ("merge-patch+json", labels),
        ("merge-patch+json", release),
        ("json-patch+json", add),
        ("json-patch+json", drop),
    ]
    match plural:
        case "configmaps":
            found += [
                ("merge-patch+json", {"data": {"x": None, "y": "9"}}),
                ("json-patch+json", [{"op": "test", "path": "/data/x", "value": "1"}]),
                ("strategic-merge-patch+json", {"data": {"z": "7"}}),
            ]
        case "widgets":
            found += [
                ("merge-patch+json", {"spec": {"size": 2, "mode": None}}),
                ("merge-patch+json", {"spec": {"parts": [{"name": "p", "weight": 5}]}}),
                ("json-patch+json", [{"op": "add", "path": "/spec/tags", "value": ["t", "t"]}]),
                ("merge-patch+json", {"spec": {"size": "large"}}),
            ]
        case _:
            containers = [{"name": "app", "image": "app:3"}, {"name": "side", "image": "side:1"}]
            found += [
                ("merge-patch+json", {"spec": {"replicas": 2}}),
                ("strategic-merge-patch+json", {"spec": {"template": {"spec": {"containers": containers}}}}),
                ("strategic-merge-patch+json", {"spec": {"paused": True}}),
                ("json-patch+json", [{"op": "replace", "path": "/spec/replicas", "value": 1}]),
            ]
    return st.sampled_from(found)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One request."""
    plural, name = draw(st.sampled_from(KINDS)), draw(st.sampled_from(NAMES))
    version = draw(st.sampled_from((None, None, 0, 1, 2)))
    manager = ("fieldManager", draw(st.sampled_from(MANAGERS)))
    dry_run = draw(st.sampled_from(((), (), (), (("dryRun", "All"),))))
    match draw(
        st.sampled_from(("create", "create", "put", "patch", "patch", "apply", "apply", "delete", "list", "pages"))
    ):
        case "patch":
            kind, patch = draw(_patches(plural))
            return Step(kind, plural, name, patch, (manager, *dry_run))
        case "apply":
            force = ("force", draw(st.sampled_from(("true", "false"))))
            # With a version, dry runs of missing objects have another form.
            return Step("apply", plural, name, draw(_bodies(plural, name)), (manager, force, *dry_run))
        case "delete":
            policy = draw(st.sampled_from(({}, {"propagationPolicy": "Background"}, {"propagationPolicy": "Orphan"})))
            return Step("delete", plural, name, policy, version=version, stale_uid=draw(st.integers(0, 4)) == 0)
        case "list":
            match = draw(st.sampled_from(((), (("resourceVersionMatch", "Exact"),))))
            selector = draw(
                st.sampled_from(((), (("labelSelector", "l=1"),), (("fieldSelector", "metadata.name=a"),)))
            )
            return Step("list", plural, query=(*match, *selector), version=version)
        case "pages":
            return Step("pages", plural, query=(("limit", "1"),))
        case verb:
            query = (manager, *dry_run)
            return Step(verb, plural, name, draw(_bodies(plural, name)), query, version if verb == "put" else None)


@settings(
    max_examples=EXAMPLES or 30,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(sequence=st.lists(steps(), min_size=4, max_size=12))
@pytest.mark.timeout(120 + EXAMPLES * 2)
def test_random_requests_get_equal_responses(sequence: list[Step], envtest_of_cases: Envtest) -> None:
    async def case(api: Api) -> None:
        run = _Run(api)
        since = (await api.list("configmaps")).expect_success().resource_version
        for step in sequence:
            await run.execute(step)
        for plural in sorted({s.plural for s in sequence}):
            await run.watch(plural, since)

    async def on_the_real_server() -> CaseResult:
        async with connect(envtest_of_cases.config, retry=None) as transport:
            return await run_on_real_server(envtest_of_cases, transport, case, namespace)

    namespace = new_namespace()
    theirs, ours = asyncio.run(on_the_real_server()), run_in_memory(case, CRDS, namespace)
    for outcome in (theirs, ours):
        if outcome.failure is not None:
            raise outcome.failure
    assert not difference(ours.exchanges, theirs.exchanges)
