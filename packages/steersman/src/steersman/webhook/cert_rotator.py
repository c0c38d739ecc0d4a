"""Issues and rotates the certificate of the webhook server, like OPA's cert-controller.

All replicas run the rotator, without leader election: their first lists may need the conversion webhook. Concurrent
writes are safe, since each is bound to the resourceVersion that was read:

- The Secret advances from one state to the next (see ``certificates``). One replica writes it, and the others read
it. - A webhook configuration is read before the Secret, and written only if it has not changed since. A slow replica
  therefore cannot replace a newer CA bundle by an older one, since bundles are written after the Secret.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from steersman.client import Client, JsonPatch, MergePatch
from steersman.errors import Conflict, NotFound, SteersmanError
from steersman.meta import (
    ApiResource,
    FrozenDict,
    ObjectKey,
    ObjectMetadata,
    Unstructured,
    metadata_only,
    unstructured,
)
from steersman.observability import metrics
from steersman.observability.logging import get_logger
from steersman.observability.runtime import Runtime
from steersman.webhook.certificates import CertificateState, KeyPair, from_secret, next_state, prepare_next, to_secret
from steersman.webhook.server_options import WebhookServerOptions

_SECRET = ApiResource("", "v1", "Secret", "secrets")
_POLL_INTERVAL_SECONDS = 60.0
_WATCH_DELAY_SECONDS = 1.0
_MIN_RETRY_SECONDS = 0.5
_MAX_RETRY_SECONDS = 30.0
_MAX_STEPS = 10

log = get_logger("webhook")


class CertRotator:
    """Maintains the certificate Secret and the CA bundles that trust it.

    Args:
        client: client without a fence.
        targets: resources and names of the objects that need the CA bundle: see ``Webhooks.ca_bundle_targets``.
        on_certificate: called with each new certificate to serve.
    """

    def __init__(
        self,
        client: Client,
        options: WebhookServerOptions,
        targets: Sequence[tuple[ApiResource, str]],
        runtime: Runtime,
        on_certificate: Callable[[KeyPair], None],
    ) -> None:
        self._client = client
        self._options = options
        self._targets = tuple(targets)
        self._runtime = runtime
        self._on_certificate = on_certificate
        self._state: CertificateState | None = None
        self._read_at: float | None = None
        self._observed_bundle: tuple[str, float] | None = None
        self._bundle_injected = False
        self._changed = asyncio.Event()
        self._observed_versions: dict[tuple[ApiResource, str], str] = {}

    @property
    def state(self) -> CertificateState | None:
        """The state in the Secret when it was last read."""
        return self._state

    def check(self) -> str | None:
        """Readiness check: None, or the reason why webhook requests may fail."""
        if self._state is None or self._read_at is None:
            return "certificate has not been issued"
        if not self._bundle_injected:
            return "CA bundle has not been injected into the webhook configurations"
        age = self._runtime.clock.monotonic() - self._read_at
        if age > self._options.rotation.grace.total_seconds() / 2:
            return f"Secret {self._options.secret_name} has not been read for {age:.0f} s"
        return None

    async def run(self) -> None:
        """Reconcile on changes and periodically, until cancelled."""
        watches = [self._runtime.spawn(self._watch(r, n), f"watch of {n}") for r, n in self._watched_objects()]
        delay = _MIN_RETRY_SECONDS
        try:
            while True:
                self._changed.clear()
                try:
                    await self.reconcile()
                    delay = _MIN_RETRY_SECONDS
                    wait = self._poll_interval()
                except Exception as error:
                    # Retry after any error, since the current certificate expires.
                    metrics.certificate_errors.inc()
                    log.warning(
                        "failed to reconcile webhook certificate, retrying", exc_info=error, retry_seconds=delay
                    )
                    wait, delay = delay, min(_MAX_RETRY_SECONDS, 2 * delay)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def reconcile(self) -> None:
        """Advance the Secret and the CA bundles as far as possible.

        Raises:
            SteersmanError: a request failed. Call it again.
        """
        for _ in range(_MAX_STEPS):
            try:
                if await self._reconcile_once():
                    return
            except Conflict:
                # Another replica wrote first: read the objects again.
                continue
        raise SteersmanError("webhook Secret or configurations change continuously; another process may write them")

    async def _reconcile_once(self) -> bool:
        """Do at most one write. Return True if nothing is left to do."""
        targets = [t for t in [await self._read(*target) for target in self._targets] if t is not None]
        secret = await self._read(_SECRET, self._options.secret_name)
        state = from_secret(_secret_data(secret)) if secret is not None else None
        if state is not None:
            self._load_certificate(state)
        propagated = self._is_propagated(state, targets)
        target_state = self._next_state(state, propagated)
        if target_state is not None:
            await self._write_secret(secret, target_state)
            return False
        assert state is not None
        for target in targets:
            if operations := _ca_bundle_patch(target, state.ca_bundle):
                await self._client.patch(type(target), target.key, JsonPatch(operations))
                log.info("injected CA bundle", kind=target.api_resource.kind, name=target.key.name)
                return False
        self._bundle_injected = True
        return True

    def _next_state(self, state: CertificateState | None, propagated: bool) -> CertificateState | None:
        now, names, rotation = self._runtime.clock.now(), self._options.server_names, self._options.rotation
        if state is None and self._state is not None and self._state.current.expires_at > now:
            # The Secret was deleted or damaged: issue a new certificate, and keep the served one trusted.
            return prepare_next(self._state, now, names, rotation)
        return next_state(state, now, names, rotation, propagated=propagated)

    def _is_propagated(self, state: CertificateState | None, targets: Sequence[Unstructured]) -> bool:
        """Return True if all targets have had the bundle for long enough."""
        if state is None or any(_ca_bundle_patch(target, state.ca_bundle) for target in targets):
            self._observed_bundle = None
            return False
        now = self._runtime.clock.monotonic()
        if self._observed_bundle is None or self._observed_bundle[0] != state.ca_bundle:
            self._observed_bundle = (state.ca_bundle, now)
        return now - self._observed_bundle[1] >= self._options.rotation.propagation.total_seconds()

    def _load_certificate(self, state: CertificateState) -> None:
        if self._state is None or self._state.current != state.current:
            metrics.certificate_reads.inc()
            self._on_certificate(state.current)
            log.info(
                "serving new certificate",
                expires=state.current.expires_at.isoformat(),
                names=self._options.server_names,
            )
        # After the callback, so that a certificate that cannot be loaded is retried and the replica is not ready.
        self._state = state
        self._read_at = self._runtime.clock.monotonic()

    def _poll_interval(self) -> float:
        """Seconds until the next reconcile: shorter than any step of a rotation."""
        wait = min(_POLL_INTERVAL_SECONDS, self._options.rotation.propagation.total_seconds() / 4)
        return wait * self._runtime.random.uniform(0.8, 1.0)

    # Objects

    async def _read(self, resource: ApiResource, name: str) -> Unstructured | None:
        key = ObjectKey(self._options.namespace if resource.namespaced else "", name)
        try:
            found = await self._client.get(unstructured(resource), key)
        except NotFound:
            # Not installed yet.
            self._observed_versions.pop((resource, name), None)
            return None
        self._observed_versions[resource, name] = found.metadata.resource_version
        return found

    async def _write_secret(self, secret: Unstructured | None, state: CertificateState) -> None:
        """Write ``state``. Raises Conflict if the Secret has changed since it was read."""
        key = ObjectKey(self._options.namespace, self._options.secret_name)
        data: dict[str, str | None] = {k: base64.b64encode(v.encode()).decode() for k, v in to_secret(state).items()}
        if secret is None:
            content = {
                "type": "kubernetes.io/tls",
                "data": data,
                "metadata": {"name": key.name, "namespace": key.namespace},
            }
            await self._client.create(unstructured(_SECRET).of(content))
        else:
            removed = {k: None for k in _secret_data(secret) if k not in data}
            metadata = {"resourceVersion": secret.metadata.resource_version}
            patch = MergePatch({"metadata": metadata, "data": {**data, **removed}})
            await self._client.patch(metadata_only(_SECRET), key, patch)
        log.info(
            "updated webhook certificate",
            secret=str(key),
            expires=state.current.expires_at.isoformat(),
            next_prepared=state.next is not None,
            previous_ca_trusted=bool(state.previous_ca),
        )

    # Changes

    def _watched_objects(self) -> list[tuple[ApiResource, str]]:
        return [*self._targets, (_SECRET, self._options.secret_name)]

    async def _watch(self, resource: ApiResource, name: str) -> None:
        """Trigger a reconcile when the object changes. Polling covers missed events."""
        namespace = self._options.namespace if resource.namespaced else ""
        selector = f"metadata.name={name}"
        while True:
            try:
                await self._watch_once(metadata_only(resource), namespace, selector)
                # A proxy may end each watch at once.
                await self._runtime.clock.sleep(_WATCH_DELAY_SECONDS)
            except SteersmanError:
                await self._runtime.clock.sleep(_POLL_INTERVAL_SECONDS)

    async def _watch_once(self, kind: type[ObjectMetadata], namespace: str, selector: str) -> None:
        async for event in self._client.watch(kind, namespace=namespace, field_selector=selector):
            obj = event.object
            if obj is None or event.type == "BOOKMARK":
                continue
            observed_version = self._observed_versions.get((kind.api_resource, obj.key.name))
            if event.type == "DELETED" or obj.metadata.resource_version != observed_version:
                self._changed.set()


def _secret_data(secret: Unstructured) -> dict[str, str]:
    data: FrozenDict[str, str] = secret.content.get("data") or FrozenDict()
    try:
        return {k: base64.b64decode(v).decode() for k, v in data.items()}
    except ValueError:
        return {}


def _ca_bundle_patch(target: Unstructured, bundle: str) -> list[dict[str, Any]]:
    """JSON patch that sets ``caBundle``; empty if it is current.

    The patch fails if ``target`` has changed since it was read.
    """
    encoded = base64.b64encode(bundle.encode()).decode()
    client_configs = _client_configs(target.content)
    operations = [
        {"op": "add", "path": f"{path}/caBundle", "value": encoded}
        for path, config in client_configs
        if config.get("caBundle") != encoded
    ]
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": target.metadata.resource_version}
    return [*operations, version] if operations else []


def _client_configs(content: Any) -> list[tuple[str, Any]]:
    """JSON pointer and value of each ``clientConfig`` in ``content``."""
    if "webhooks" in content:
        return [(f"/webhooks/{i}/clientConfig", w["clientConfig"]) for i, w in enumerate(content["webhooks"] or ())]
    spec: dict[str, Any] = content.get("spec") or {}
    conversion: dict[str, Any] = spec.get("conversion") or {}
    webhook: dict[str, Any] = conversion.get("webhook") or {}
    return [("/spec/conversion/webhook/clientConfig", webhook["clientConfig"])] if "clientConfig" in webhook else []
