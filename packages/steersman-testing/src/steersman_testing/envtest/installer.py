"""Installation of CRDs, webhooks and RBAC objects on an API server."""

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
from steersman_manifests.manifest_files import Manifest
from steersman_testing.envtest.webhooks import LocalWebhookServing, redirect_conversion, redirect_webhooks
from steersman_testing.manifests import CRD_KINDS, WEBHOOK_KINDS, ManifestSource, collect_manifests

_INSTALLABLE_KINDS = (
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
)
_RESOURCES = {kind.api_resource.kind: kind.api_resource for kind in _INSTALLABLE_KINDS}
_MARKER_LABEL = "envtest.steersman.dev/marker"
_MARKER = "marker.envtest.steersman.dev"
_POLL_INTERVAL = 0.02
_WAIT_TIMEOUT_SECONDS = 30.0


class ResourceInstaller:
    """Installs objects and remembers which ones it created.

    Args:
        client: client of an administrator.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._created: dict[tuple[type[Unstructured], ObjectKey], None] = {}

    async def apply(self, manifest: Manifest) -> None:
        """Create or update one object.

        Raises:
            ConfigurationError: if the kind is not supported.
            ApiError: if the API server rejects the object.
        """
        kind, key, content = _parse_manifest(manifest)
        if not await self._exists(kind.api_resource, key):
            self._created[(kind, key)] = None
        await self._client.apply(kind.of(content))

    async def delete(self, manifest: Manifest) -> None:
        """Delete one object, if it exists."""
        kind, key, _ = _parse_manifest(manifest)
        await self._delete(kind, key)

    async def uninstall(self) -> None:
        """Delete created objects except CRDs, whose deletion would delete custom resources."""
        for kind, key in reversed(list(self._created)):
            if kind.api_resource.kind not in CRD_KINDS:
                await self._delete(kind, key)

    async def install_crds(
        self, sources: Iterable[ManifestSource], serving: Callable[[], LocalWebhookServing]
    ) -> None:
        """Install definitions and wait until every version is served.

        Args:
            sources: see ``collect_manifests``.
            serving: target of conversion webhooks.

        Raises:
            ConfigurationError, ApiError: if a source is invalid or rejected.
            SteersmanError: on timeout. The message contains the conditions.
        """
        definitions = [redirect_conversion(m, serving) for m in collect_manifests(sources, CRD_KINDS)]
        for each in definitions:
            await self.apply(each)
        for each in definitions:
            for version in each["spec"]["versions"]:
                if version["served"]:
                    await self._wait_until_served(each, version["name"])

    async def install_webhooks(self, sources: Iterable[ManifestSource], serving: LocalWebhookServing) -> None:
        """Install configurations redirected to ``serving``, and wait until they are effective.

        Raises:
            ConfigurationError, ApiError: if a source is invalid or rejected.
            SteersmanError: on timeout.
        """
        configurations = [redirect_webhooks(m, serving) for m in collect_manifests(sources, WEBHOOK_KINDS)]
        # Validating first: a mutating webhook without a running handler would reject the probe.
        for kind in reversed(WEBHOOK_KINDS):
            chosen = [m for m in configurations if m["kind"] == kind]
            for each in chosen:
                await self.apply(each)
            if chosen:
                await self._wait_until_effective(kind)

    async def _delete(self, kind: type[Unstructured], key: ObjectKey) -> None:
        self._created.pop((kind, key), None)
        with contextlib.suppress(NotFound):
            await self._client.delete(metadata_only(kind), key)

    async def _exists(self, resource: ApiResource, key: ObjectKey) -> bool:
        try:
            await self._client.get(metadata_only(resource), key)
        except NotFound:
            return False
        return True

    async def _wait_until_served(self, crd: Manifest, version: str) -> None:
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        has_webhook = crd["spec"].get("conversion", {}).get("strategy") == "Webhook"

        async def served() -> bool:
            # After the condition Established, requests still fail with 404 and then 429 for a moment.
            try:
                await self._client.raw(f"/apis/{group}/{version}/{plural}", query={"limit": "1"})
            except (NotFound, TooManyRequests):
                return False
            except ServerError:
                # The webhook converts stored objects of other versions, and may not run yet.
                return has_webhook
            return True

        if not await poll_until(served):
            name = crd["metadata"]["name"]
            found = await self._client.get(CustomResourceDefinition, ObjectKey("", name))
            conditions = (
                "; ".join(f"{c.type}={c.status}: {c.message}" for c in found.status.conditions) or "no condition"
            )
            raise SteersmanError(
                f"{name} is not served in version {version} after {_WAIT_TIMEOUT_SECONDS:g} s: {conditions}"
            )

    async def _wait_until_effective(self, kind: str) -> None:
        """Wait until the admission plugin has observed the stored configurations.

        It observes them in order. A marker webhook without a handler is stored last. As soon as the marker rejects
        a request, the other configurations are effective.
        """
        token = secrets.token_hex(4)
        marker = _marker(kind, token)
        labels = FrozenDict({_MARKER_LABEL: token})
        probe = ConfigMap(metadata=ObjectMeta(name=token, namespace="default", labels=labels))

        async def refused() -> bool:
            try:
                await self._client.create(probe, dry_run=True)
            except ApiError as error:
                # An installed webhook may also reject the probe, and the server reports only one.
                return _MARKER in str(error)
            return False

        await self.apply(marker)
        try:
            if not await poll_until(refused):
                raise SteersmanError(f"a {kind} is not effective after {_WAIT_TIMEOUT_SECONDS:g} s")
        finally:
            await self.delete(marker)


async def poll_until(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Return True if ``condition`` becomes true within 30 seconds."""
    deadline = time.monotonic() + _WAIT_TIMEOUT_SECONDS
    while not await condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(_POLL_INTERVAL)
    return True


def _parse_manifest(manifest: Manifest) -> tuple[type[Unstructured], ObjectKey, Manifest]:
    resource = _RESOURCES.get(manifest.get("kind", ""))
    if resource is None or manifest.get("apiVersion") != resource.api_version:
        known = ", ".join(r.kind for r in _RESOURCES.values())
        raise ConfigurationError(
            f"{manifest.get('apiVersion')} {manifest.get('kind')} cannot be installed. "
            f"Supported kinds are {known}, in version v1"
        )
    # Generators write an empty status and creationTimestamp, which belong to the server.
    content = {name: value for name, value in manifest.items() if name != "status"}
    content["metadata"] = {k: v for k, v in manifest["metadata"].items() if k != "creationTimestamp"}
    metadata: Manifest = content["metadata"]
    return unstructured(resource), ObjectKey(metadata.get("namespace", ""), metadata["name"]), content


def _marker(kind: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        # Mutating webhooks are called in order of their names.
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
