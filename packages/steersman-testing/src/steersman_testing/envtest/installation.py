"""Puts definitions and webhooks on a server, waits until they count, and takes away what it put."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from steersman.api.admissionregistration_v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.core_v1 import ConfigMap
from steersman.api.rbac_v1 import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from steersman.client import Client
from steersman.errors import ApiError, ConfigurationError, NotFound, ServerError, SteersmanError, TooManyRequests
from steersman.meta import ApiResource, FrozenDict, ObjectKey, ObjectMeta, Unstructured, metadata_only, unstructured
from steersman.meta.manifests import Manifest
from steersman_testing.envtest.webhooks import WebhookServing, pointed, pointed_conversion
from steersman_testing.manifests import DEFINITIONS, WEBHOOKS, Source, manifests_from

_INSTALLED = (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
)
_RESOURCES = {kind.api_resource.kind: kind.api_resource for kind in _INSTALLED}
_MARKER_LABEL = "envtest.steersman.dev/marker"
_MARKER = "marker.envtest.steersman.dev"
_POLL_INTERVAL = 0.02
_PATIENCE = 30.0


class Installation:
    """What was put on one server.

    Args:
        client: of an administrator.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._made: dict[tuple[type[Unstructured], ObjectKey], None] = {}

    async def apply(self, manifest: Manifest) -> None:
        """Creates or changes one object.

        Raises:
            ConfigurationError: no object of this kind is installed here.
            ApiError: the server refuses it.
        """
        kind, key, content = _object(manifest)
        if not await self._exists(kind.api_resource, key):
            self._made[(kind, key)] = None
        await self._client.apply(kind.of(content))

    async def delete(self, manifest: Manifest) -> None:
        """Deletes one object, if it is there."""
        kind, key, _ = _object(manifest)
        await self._delete(kind, key)

    async def remove(self) -> None:
        """Deletes what was not there before, definitions aside: custom resources of others would go with them."""
        for kind, key in reversed(list(self._made)):
            if kind.api_resource.kind not in DEFINITIONS:
                await self._delete(kind, key)

    async def crds(self, sources: Iterable[Source], serving: Callable[[], WebhookServing]) -> None:
        """Installs definitions and waits until every version is served.

        Args:
            serving: what conversion webhooks are pointed to.

        Raises:
            ConfigurationError, ApiError: a source is not right, or the server refuses one.
            SteersmanError: one is not served in time; says what its conditions say.
        """
        definitions = [pointed_conversion(m, serving) for m in manifests_from(sources, DEFINITIONS)]
        for each in definitions:
            await self.apply(each)
        for each in definitions:
            for version in each["spec"]["versions"]:
                if version["served"]:
                    await self._until_served(each, version["name"])

    async def webhooks(self, sources: Iterable[Source], serving: WebhookServing) -> None:
        """Installs configurations, pointed to ``serving``, and waits until the API server knows them.

        Raises:
            ConfigurationError, ApiError: a source is not right, or the server refuses one.
            SteersmanError: the server does not know them in time.
        """
        configurations = [pointed(m, serving) for m in manifests_from(sources, WEBHOOKS)]
        # A mutating webhook whose handler does not listen yet would refuse what the validating ones are probed with.
        for kind in reversed(WEBHOOKS):
            chosen = [m for m in configurations if m["kind"] == kind]
            for each in chosen:
                await self.apply(each)
            if chosen:
                await self._until_known(kind)

    async def _delete(self, kind: type[Unstructured], key: ObjectKey) -> None:
        self._made.pop((kind, key), None)
        with contextlib.suppress(NotFound):
            await self._client.delete(metadata_only(kind), key)

    async def _exists(self, resource: ApiResource, key: ObjectKey) -> bool:
        try:
            await self._client.get(metadata_only(resource), key)
        except NotFound:
            return False
        return True

    async def _until_served(self, crd: Manifest, version: str) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]

        async def served() -> bool:
            # Established comes first: for some moments after it, requests are answered with 404, and then with 429.
            try:
                await self._client.raw(f"/apis/{group}/{version}/{plural}", query={"limit": "1"})
            except (NotFound, TooManyRequests, ServerError):
                return False
            return True

        if not await until(served):
            name = crd["metadata"]["name"]
            found = await self._client.get(CustomResourceDefinition, ObjectKey("", name))
            said = "; ".join(f"{c.type}={c.status}: {c.message}" for c in found.status.conditions) or "no condition"
            raise SteersmanError(f"{name} is not served in version {version} after {_PATIENCE:g} s: {said}")

    async def _until_known(self, kind: str) -> None:
        """Returns once the admission of the API server knows what was stored of ``kind`` before this call.

        It learns of them in their order. So a marker is stored after them, a webhook that nobody answers: once it
        makes a request fail, the others count as well.
        """
        token = secrets.token_hex(4)
        marker = _marker(kind, token)
        labels = FrozenDict({_MARKER_LABEL: token})
        probe = ConfigMap(metadata=ObjectMeta(name=token, namespace="default", labels=labels))

        async def refused() -> bool:
            try:
                await self._client.create(probe, dry_run=True)
            except ApiError as error:
                # Those that were installed may refuse it as well, and the server tells of one.
                return _MARKER in str(error)
            return False

        await self.apply(marker)
        try:
            if not await until(refused):
                raise SteersmanError(f"the API server does not heed a {kind} after {_PATIENCE:g} s")
        finally:
            await self.delete(marker)


async def until(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Whether ``condition`` came true within half a minute."""
    end = time.monotonic() + _PATIENCE
    while not await condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    return True


def _object(manifest: Manifest) -> tuple[type[Unstructured], ObjectKey, Manifest]:
    resource = _RESOURCES.get(manifest.get("kind", ""))
    if resource is None or manifest.get("apiVersion") != resource.api_version:
        known = ", ".join(r.kind for r in _RESOURCES.values())
        raise ConfigurationError(
            f"{manifest.get('apiVersion')} {manifest.get('kind')} is not installed here, only {known}, in version v1"
        )
    # A status and dates that a generator left in the file are the server's.
    content = {name: value for name, value in manifest.items() if name != "status"}
    content["metadata"] = {k: v for k, v in manifest["metadata"].items() if k != "creationTimestamp"}
    metadata: Manifest = content["metadata"]
    return unstructured(resource), ObjectKey(metadata.get("namespace", ""), metadata["name"]), content


def _marker(kind: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        # Mutating webhooks are called in the order of their names.
        "metadata": {"name": f"0-envtest-marker-{token}"},
        "webhooks": [
            {
                "name": _MARKER,
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
                ],
                "objectSelector": {"matchLabels": {_MARKER_LABEL: token}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 1,
            }
        ],
    }
