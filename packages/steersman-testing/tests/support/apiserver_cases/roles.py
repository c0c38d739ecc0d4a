"""Roles, bindings and users for the cases about access."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json

RBAC = "rbac.authorization.k8s.io"
RBAC_PATH = f"/apis/{RBAC}/v1"


def user_subject(name: str) -> Json:
    """A subject."""
    return {"kind": "User", "name": name, "apiGroup": RBAC}


def group_subject(name: str) -> Json:
    """A subject."""
    return {"kind": "Group", "name": name, "apiGroup": RBAC}


def policy_rule(verbs: str, resources: str, groups: str = "core", **more: Any) -> Json:
    """A rule of words by spaces; ``core`` is the group without a name."""
    named = ["" if g == "core" else g for g in groups.split()]
    return {"apiGroups": named, "resources": resources.split(), "verbs": verbs.split(), **more}


def role_manifest(name: str, *rules: Json, **fields: Any) -> Json:
    """A Role or ClusterRole, as its path says."""
    return {"metadata": {"name": name}, "rules": list(rules), **fields}


def binding_manifest(name: str, role_name: str, *subjects: Json, kind: str = "Role") -> Json:
    """A RoleBinding or ClusterRoleBinding, as its path says."""
    ref = {"apiGroup": RBAC, "kind": kind, "name": role_name}
    return {"metadata": {"name": name}, "roleRef": ref, "subjects": list(subjects)}


async def grant_in_namespace(api: Api, subject: Json, *rules: Json, name: str = "granted") -> None:
    """Lets ``who`` do in the namespace what ``rules`` allow, and waits until the server knows."""
    (await api.create("roles", role_manifest(name, *rules))).expect_success()
    (await api.create("rolebindings", binding_manifest(name, name, subject))).expect_success()
    await wait_until_allowed(api, subject, rules[0])


async def wait_until_allowed(api: Api, subject_ref: Json, allowed: Json) -> None:
    """Returns once ``who`` may do what the first words of the rule ``allowed`` say."""
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
    """The first answer that fits: the real server's caches lag behind what is written."""
    async with asyncio.timeout(30):
        while not condition(reply := await request()):
            await asyncio.sleep(0.02)
    return reply


def denial_message(name: str, verb: str, resource: str, group: str, scope: str) -> str:
    """What the refusal says of user ``name``."""
    return f'User "{name}" cannot {verb} resource "{resource}" in API group "{group}" {scope}'
