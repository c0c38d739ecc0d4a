"""Roles, bindings and users for the cases about access."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json

RBAC = "rbac.authorization.k8s.io"
RBAC_PATH = f"/apis/{RBAC}/v1"


def user_subject(name: str) -> Json:
    """Return a subject for a user."""
    return {"kind": "User", "name": name, "apiGroup": RBAC}


def group_subject(name: str) -> Json:
    """Return a subject for a group."""
    return {"kind": "Group", "name": name, "apiGroup": RBAC}


def policy_rule(verbs: str, resources: str, groups: str = "core", **more: Any) -> Json:
    """Return a rule from space-separated words. ``core`` is the empty group."""
    named = ["" if g == "core" else g for g in groups.split()]
    return {"apiGroups": named, "resources": resources.split(), "verbs": verbs.split(), **more}


def role_manifest(name: str, *rules: Json, **fields: Any) -> Json:
    """Return a Role or ClusterRole, by its path."""
    return {"metadata": {"name": name}, "rules": list(rules), **fields}


def binding_manifest(name: str, role_name: str, *subjects: Json, kind: str = "Role") -> Json:
    """Return a RoleBinding or ClusterRoleBinding, by its path."""
    ref = {"apiGroup": RBAC, "kind": kind, "name": role_name}
    return {"metadata": {"name": name}, "roleRef": ref, "subjects": list(subjects)}


async def grant_in_namespace(api: Api, subject: Json, *rules: Json, name: str = "granted") -> None:
    """Grant ``rules`` in the namespace and wait until the server observes them."""
    (await api.create("roles", role_manifest(name, *rules))).expect_success()
    (await api.create("rolebindings", binding_manifest(name, name, subject))).expect_success()
    await wait_until_allowed(api, subject, rules[0])


async def wait_until_allowed(api: Api, subject_ref: Json, allowed: Json) -> None:
    """Wait until a user has the first verb of the rule ``allowed``."""
    subject = {"user": subject_ref["name"]} if subject_ref["kind"] == "User" else {"groups": [subject_ref["name"]]}
    if subject_ref["kind"] == "ServiceAccount":
        subject = {"user": f"system:serviceaccount:{subject_ref['namespace']}:{subject_ref['name']}"}
    resource, _, subresource = allowed["resources"][0].partition("/")
    resource_attributes = {
        "namespace": api.namespace,
        "verb": allowed["verbs"][0],
        "group": allowed["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "name": (allowed.get("resourceNames") or [""])[0],
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    body: Json = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    body["spec"] = {**subject, "resourceAttributes": resource_attributes}
    await poll(lambda: api.call("POST", path, body), lambda r: r.expect_success().body["status"]["allowed"])


async def poll(
    request: Callable[[], Awaitable[ApiResponse]], condition: Callable[[ApiResponse], bool]
) -> ApiResponse:
    """Return the first matching response. Caches of the real server lag behind."""
    async with asyncio.timeout(30):
        while not condition(response := await request()):
            await asyncio.sleep(0.02)
    return response


def denial_message(name: str, verb: str, resource: str, group: str, scope: str) -> str:
    """Return the message of a denial for the user ``name``."""
    return f'User "{name}" cannot {verb} resource "{resource}" in API group "{group}" {scope}'
