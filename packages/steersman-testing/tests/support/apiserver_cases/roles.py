"""Roles, bindings and users for the cases about access."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from apiserver_cases.api import Api, Json, Reply

RBAC = "rbac.authorization.k8s.io"
RBAC_PATH = f"/apis/{RBAC}/v1"


def user(name: str) -> Json:
    """A subject."""
    return {"kind": "User", "name": name, "apiGroup": RBAC}


def group(name: str) -> Json:
    """A subject."""
    return {"kind": "Group", "name": name, "apiGroup": RBAC}


def rule(verbs: str, resources: str, groups: str = "core", **more: Any) -> Json:
    """A rule of words by spaces; ``core`` is the group without a name."""
    named = ["" if g == "core" else g for g in groups.split()]
    return {"apiGroups": named, "resources": resources.split(), "verbs": verbs.split(), **more}


def role(name: str, *rules: Json, **fields: Any) -> Json:
    """A Role or ClusterRole, as its path says."""
    return {"metadata": {"name": name}, "rules": list(rules), **fields}


def binding(name: str, to: str, *subjects: Json, kind: str = "Role") -> Json:
    """A RoleBinding or ClusterRoleBinding, as its path says."""
    ref = {"apiGroup": RBAC, "kind": kind, "name": to}
    return {"metadata": {"name": name}, "roleRef": ref, "subjects": list(subjects)}


async def grant(api: Api, who: Json, *rules: Json, name: str = "granted") -> None:
    """Lets ``who`` do in the namespace what ``rules`` allow, and waits until the server knows."""
    (await api.create("roles", role(name, *rules))).ok()
    (await api.create("rolebindings", binding(name, name, who))).ok()
    await until_allowed(api, who, rules[0])


async def until_allowed(api: Api, who: Json, allowed: Json) -> None:
    """Returns once ``who`` may do what the first words of the rule ``allowed`` say."""
    subject = {"user": who["name"]} if who["kind"] == "User" else {"groups": [who["name"]]}
    if who["kind"] == "ServiceAccount":
        subject = {"user": f"system:serviceaccount:{who['namespace']}:{who['name']}"}
    resource, _, subresource = allowed["resources"][0].partition("/")
    wanted = {
        "namespace": api.namespace,
        "verb": allowed["verbs"][0],
        "group": allowed["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "name": (allowed.get("resourceNames") or [""])[0],
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    body: Json = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    body["spec"] = {**subject, "resourceAttributes": wanted}
    await until(lambda: api.call("POST", path, body), lambda r: r.ok().body["status"]["allowed"])


async def until(ask: Callable[[], Awaitable[Reply]], fits: Callable[[Reply], bool]) -> Reply:
    """The first answer that fits: the real server's caches lag behind what is written."""
    async with asyncio.timeout(30):
        while not fits(reply := await ask()):
            await asyncio.sleep(0.02)
    return reply


def denied(name: str, verb: str, resource: str, group: str, where: str) -> str:
    """What the refusal says of user ``name``."""
    return f'User "{name}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
