"""Keeps the certificate of a webhook server: made, trusted by the API server, replaced in time, on every replica.

All replicas do the same work, and none of them leads: what they list before one can be elected may itself have to be
converted by a webhook. They cannot fight, since every write is bound to the version that was read:

- The Secret moves from one state to the next (see ``certificates``); of several replicas one does it, and the others
  read what it wrote.
- A configuration is read before the Secret, and written only if it has not changed since. So a replica that sleeps
  between the two cannot put an older bundle over a newer one: who writes the Secret writes configurations afterwards.
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
_MIN_RETRY_SECONDS = 0.5
_MAX_RETRY_SECONDS = 30.0
_MAX_STEPS = 10

log = get_logger("webhook")


class CertRotator:
    """Keeps what ``on_certificate`` is given up to date.

    Args:
        client: writes, whether this replica leads or not.
        targets: the objects that name the authority: see ``Webhooks.targets``.
        on_certificate: called with each certificate that is to be served from now on.
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
        """What the Secret had when it was last read."""
        return self._state

    def check(self) -> str | None:
        """For ``/readyz``: None, or why requests may fail."""
        if self._state is None or self._read_at is None:
            return "there is no certificate yet"
        if not self._bundle_injected:
            return "the webhook configurations do not have the authority yet"
        age = self._runtime.clock.monotonic() - self._read_at
        if age > self._options.rotation.grace.total_seconds() / 2:
            return f"the certificate's Secret was not read for {age:.0f} s"
        return None

    async def run(self) -> None:
        """Keeps at it until it is cancelled."""
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
                    # Whatever it is, the next certificate will be due some day.
                    metrics.certificate_errors.inc()
                    log.warning("certificates are not looked after", exc_info=error, retry_seconds=delay)
                    wait, delay = delay, min(_MAX_RETRY_SECONDS, 2 * delay)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
        finally:
            for watch in watches:
                watch.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def reconcile(self) -> None:
        """Brings Secret and configurations as far as they can go now.

        Raises:
            SteersmanError: a read or write was refused, or not answered; call it again.
        """
        for _ in range(_MAX_STEPS):
            try:
                if await self._reconcile_once():
                    return
            except Conflict:
                # Another replica was faster; what it did is read now.
                continue
        raise SteersmanError("others change Secret or configurations all the time")

    async def _reconcile_once(self) -> bool:
        """Does one write, if there is one to do; whether there was none."""
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
                log.info("authority written", kind=target.api_resource.kind, name=target.key.name)
                return False
        self._bundle_injected = True
        return True

    def _next_state(self, state: CertificateState | None, propagated: bool) -> CertificateState | None:
        now, names, rotation = self._runtime.clock.now(), self._options.server_names, self._options.rotation
        if state is None and self._state is not None and self._state.current.expires_at > now:
            # Somebody deleted or broke it, and so asks for another; what is served meanwhile stays trusted.
            return prepare_next(self._state, now, names, rotation)
        return next_state(state, now, names, rotation, propagated=propagated)

    def _is_propagated(self, state: CertificateState | None, targets: Sequence[Unstructured]) -> bool:
        """Whether all targets have had the bundle for long enough, as far as this process has seen."""
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
                "certificate is served",
                expires=state.current.expires_at.isoformat(),
                names=self._options.server_names,
            )
        # Only now: one that could not be served is tried again, and until then this replica is not ready.
        self._state = state
        self._read_at = self._runtime.clock.monotonic()

    def _poll_interval(self) -> float:
        """Seconds until it looks again: often enough for the shortest step of a rotation."""
        wait = min(_POLL_INTERVAL_SECONDS, self._options.rotation.propagation.total_seconds() / 4)
        return wait * self._runtime.random.uniform(0.8, 1.0)

    # Objects

    async def _read(self, resource: ApiResource, name: str) -> Unstructured | None:
        key = ObjectKey(self._options.namespace if resource.namespaced else "", name)
        try:
            found = await self._client.get(unstructured(resource), key)
        except NotFound:
            # Not installed, or not yet.
            self._observed_versions.pop((resource, name), None)
            return None
        self._observed_versions[resource, name] = found.metadata.resource_version
        return found

    async def _write_secret(self, secret: Unstructured | None, state: CertificateState) -> None:
        """Writes ``state`` if the Secret still is as it was read. Raises Conflict."""
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
            "certificates changed",
            secret=str(key),
            expires=state.current.expires_at.isoformat(),
            next_is_prepared=state.next is not None,
            former_is_trusted=bool(state.previous_ca),
        )

    # Changes

    def _watched_objects(self) -> list[tuple[ApiResource, str]]:
        return [*self._targets, (_SECRET, self._options.secret_name)]

    async def _watch(self, resource: ApiResource, name: str) -> None:
        """Has the objects looked at as soon as one changes; what a watch misses is seen a minute later."""
        namespace = self._options.namespace if resource.namespaced else ""
        selector = f"metadata.name={name}"
        while True:
            try:
                await self._watch_once(metadata_only(resource), namespace, selector)
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
    """What gives ``target`` the authorities ``bundle``, if it still is as it was read."""
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
    """Every ``clientConfig`` of a webhook configuration or a definition, by its path."""
    if "webhooks" in content:
        return [(f"/webhooks/{i}/clientConfig", w["clientConfig"]) for i, w in enumerate(content["webhooks"] or ())]
    spec: dict[str, Any] = content.get("spec") or {}
    conversion: dict[str, Any] = spec.get("conversion") or {}
    webhook: dict[str, Any] = conversion.get("webhook") or {}
    return [("/spec/conversion/webhook/clientConfig", webhook["clientConfig"])] if "clientConfig" in webhook else []
