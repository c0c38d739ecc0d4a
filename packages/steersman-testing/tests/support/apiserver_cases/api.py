"""Requests to an API server, and example objects."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from steersman.client import HttpRequest
from steersman.client.transport import Transport
from steersman_testing.apiserver.kubectl.impersonation import ImpersonatedUser

Json = dict[str, Any]
GROUP = "cases.steersman.dev"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
"""Accept header for aggregated discovery."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """Response with HTTP status and JSON body."""

    code: int
    body: Json

    @property
    def reason(self) -> str:
        return self.body.get("reason", "")

    @property
    def message(self) -> str:
        return self.body.get("message", "")

    @property
    def metadata(self) -> Json:
        return self.body["metadata"]

    @property
    def resource_version(self) -> str:
        return self.metadata["resourceVersion"]

    def expect_success(self) -> ApiResponse:
        """Return the response, which must be a success."""
        assert self.code < 300, self.body
        return self

    def expect_error(self, code: int, reason: str, text: str = "") -> ApiResponse:
        """Return the response, which must be an error.

        ``text`` must be in its message.
        """
        assert (self.code, self.reason) == (code, reason), self.body
        assert text in self.message, self.message
        return self

    def causes(self) -> list[tuple[str, str]]:
        """Return field and reason of each cause."""
        found: list[Json] = self.body.get("details", {}).get("causes") or []
        return [(c.get("field", ""), c.get("reason", "")) for c in found]


class Backend(Protocol):
    """Features of a server besides requests of an administrator."""

    def as_user(self, name: str, groups: tuple[str, ...]) -> Transport:
        """Return a transport that impersonates a user."""
        ...

    def as_bearer(self, token: str, impersonate: ImpersonatedUser | None = None) -> Transport:
        """Return a transport with a bearer token.

        It impersonates a user if one is given.
        """
        ...

    async def serve_webhook(self, handler: WebhookHandler) -> Json:
        """Serve a webhook until the case ends and return its ``clientConfig``."""
        ...


WebhookHandler = Callable[[Json], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Api:
    """A server with a namespace."""

    transport: Transport
    namespace: str
    backend: Backend | None = None

    def as_user(self, name: str, *groups: str) -> Api:
        """Return the API as the user ``name``."""
        assert self.backend is not None
        return replace(self, transport=self.backend.as_user(name, groups))

    def as_bearer(self, token: str, impersonate: ImpersonatedUser | None = None) -> Api:
        """Return the API with a bearer token."""
        assert self.backend is not None
        return replace(self, transport=self.backend.as_bearer(token, impersonate))

    async def serve_webhook(self, handler: WebhookHandler) -> Json:
        """Serve a webhook and return its ``clientConfig``."""
        assert self.backend is not None
        return await self.backend.serve_webhook(handler)

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        """Return the path of a collection or an object in the namespace."""
        prefixes = {
            **dict.fromkeys(("daemonsets", "deployments", "replicasets", "statefulsets"), "/apis/apps/v1"),
            **dict.fromkeys(("cronjobs", "jobs"), "/apis/batch/v1"),
            "endpointslices": "/apis/discovery.k8s.io/v1",
            "horizontalpodautoscalers": "/apis/autoscaling/v2",
            "leases": "/apis/coordination.k8s.io/v1",
            **dict.fromkeys(("ingresses", "networkpolicies"), "/apis/networking.k8s.io/v1"),
            "poddisruptionbudgets": "/apis/policy/v1",
            **dict.fromkeys(("rolebindings", "roles"), "/apis/rbac.authorization.k8s.io/v1"),
            **dict.fromkeys(
                ("gadgets", "owneds", "ruleds", "samples", "scaleds", "twins", "widgets"), f"/apis/{GROUP}/v1"
            ),
        }
        parts = [prefixes.get(plural, "/api/v1"), "namespaces", self.namespace, plural, name, subresource]
        return "/".join(p for p in parts if p)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> ApiResponse:
        """Send a request. A body of bytes is sent unchanged."""
        encoded = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = HttpRequest(
            method=method,
            path=path,
            query=query or {},
            body=encoded,
            content_type=content_type,
            timeout=90,  # longer than the server takes itself: it spends a whole budget of rules in one case
            accept=accept,
        )
        response = await self.transport.request(request)
        try:
            return ApiResponse(response.status, json.loads(response.body))
        except ValueError:
            return ApiResponse(response.status, {"message": response.body.decode()})

    async def create(self, plural: str, body: Json, **query: str) -> ApiResponse:
        return await self.call("POST", self.path(plural), body, query)

    async def get(self, plural: str, name: str, subresource: str = "") -> ApiResponse:
        return await self.call("GET", self.path(plural, name, subresource))

    async def put(self, plural: str, body: Json, subresource: str = "", **query: str) -> ApiResponse:
        return await self.call("PUT", self.path(plural, body["metadata"]["name"], subresource), body, query)

    async def list(self, plural: str, **query: str) -> ApiResponse:
        return await self.call("GET", self.path(plural), None, query)

    async def delete(self, plural: str, name: str, options: Json | None = None, **query: str) -> ApiResponse:
        return await self.call("DELETE", self.path(plural, name), options, query)

    async def merge(self, plural: str, name: str, patch: Json, subresource: str = "", **query: str) -> ApiResponse:
        path = self.path(plural, name, subresource)
        return await self.call("PATCH", path, patch, query, "application/merge-patch+json")

    async def strategic(
        self, plural: str, name: str, patch: Json, subresource: str = "", **query: str
    ) -> ApiResponse:
        path, content_type = self.path(plural, name, subresource), "application/strategic-merge-patch+json"
        return await self.call("PATCH", path, patch, query, content_type)

    async def json_patch(self, plural: str, name: str, *operations: Json) -> ApiResponse:
        return await self.call("PATCH", self.path(plural, name), list(operations), {}, "application/json-patch+json")

    async def apply(
        self,
        plural: str,
        body: Json,
        manager: str = "tester",
        *,
        force: bool = False,
        subresource: str = "",
        **query: str,
    ) -> ApiResponse:
        path = self.path(plural, body["metadata"]["name"], subresource)
        query = {"fieldManager": manager, "force": str(force).lower(), **query}
        return await self.call("PATCH", path, body, query, "application/apply-patch+yaml")

    async def events(self, plural: str, count: int, accept: str = "application/json", **query: str) -> list[Json]:
        """Return the first ``count`` events of a watch.

        There are fewer if the watch ends within 10 s.
        """
        query = {"watch": "true", "timeoutSeconds": "10", **query}
        request = HttpRequest(method="GET", path=self.path(plural), query=query, timeout=30, accept=accept)
        found: list[Json] = []
        async with self.transport.stream(request) as lines:
            async for line in lines:
                found.append(json.loads(line))
                if len(found) == count:
                    break
        return found


def error_cases(*values_and_errors: tuple[Any, str]) -> tuple[tuple[Any, str], ...]:
    """Return invalid values of any type, each with its error message."""
    return values_and_errors


Case = Callable[[Api], Awaitable[None]]


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Json:
    """Return a ConfigMap."""
    result: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    if data is not None:
        result["data"] = data
    return result


def widget(name: str, spec: Json | None = None, **metadata: Any) -> Json:
    """Return a custom resource with a status subresource."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Widget",
        "metadata": {"name": name, **metadata},
        "spec": {"size": 1} if spec is None else spec,
    }


def gadget(name: str, **fields: Any) -> Json:
    """Return a custom resource without subresources."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": name}, **fields}


def deployment(name: str, **spec: Any) -> Json:
    """Return a Deployment with one container."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


_CONDITION = {
    "type": "object",
    "required": ["type", "status"],
    "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "message": {"type": "string"}},
}
_WIDGET_SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 0, "maximum": 100},
        "mode": {"type": "string", "enum": ["fast", "safe"], "default": "safe"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "weight": {"type": "integer", "default": 1},
                    "colour": {"type": "string"},
                },
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "steps": {"type": "array", "items": {"type": "string"}},
        "rollout": {
            "type": "object",
            "default": {},
            "properties": {"pace": {"type": "string", "default": "slow"}, "pause": {"type": "boolean"}},
        },
    },
}


def definition(kind: str, properties: Json, subresources: Json) -> Json:
    """Return a CustomResourceDefinition with one version."""
    plural = f"{kind.lower()}s"
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        "subresources": subresources,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [version],
        },
    }


_WIDGET_STATUS = {
    "type": "object",
    "properties": {
        "ready": {"type": "integer"},
        "conditions": {
            "type": "array",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    },
}
BASE_CRDS = [
    definition("Widget", {"spec": _WIDGET_SPEC, "status": _WIDGET_STATUS}, {"status": {}}),
    definition(
        "Gadget",
        {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "status": _WIDGET_STATUS},
        {},
    ),
]
