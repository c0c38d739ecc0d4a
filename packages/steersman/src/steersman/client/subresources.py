"""Client for subresources: scale, eviction, token and log.

Functions import the built-in kinds at their first call, since each API group defines many types and imports slowly.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from steersman.client.encode import with_type_meta
from steersman.client.request_sender import RequestSender
from steersman.client.transport.interface import HttpRequest
from steersman.client.write_options import write_query
from steersman.meta import ApiResource, Object, ObjectKey, decode, encode

if TYPE_CHECKING:
    from steersman.api.authentication_v1 import TokenRequest
    from steersman.api.autoscaling_v1 import Scale

_POD = ApiResource("", "v1", "Pod", "pods")
_SERVICE_ACCOUNT = ApiResource("", "v1", "ServiceAccount", "serviceaccounts")
# A pod may log nothing for hours. The kubelet ends streams after four silent hours.
# TCP keep-alive detects a dead peer.
_LOG_IDLE_TIMEOUT_SECONDS = 4 * 3600.0


class SubresourceClient:
    """Methods of ``Client`` for subresources."""

    def __init__(self, sender: RequestSender) -> None:
        self._sender = sender

    @property
    def field_manager(self) -> str:
        """Name under which writes own their fields."""
        return self._sender.field_manager

    def with_field_manager(self, name: str) -> Self:
        """Return the same client with another field manager.

        Several owners can then apply parts of one object: see "Share an object" in "Use the client".

        Args:
            name: at most 128 characters, such as ``shop-operator/<UID of the owner>``.
        """
        other = copy(self)
        other._sender = self._sender.with_field_manager(name)  # noqa: SLF001 - a copy of this object
        return other

    async def get_scale(self, kind: type[Object], key: ObjectKey) -> Scale:
        """Return the desired and current replicas of ``key``.

        Raises:
            NotFound: the object does not exist, or ``kind`` has no scale subresource.
        """
        from steersman.api.autoscaling_v1 import Scale

        path = kind.api_resource.path(key, subresource="scale")
        return self._sender.decode_object(await self._sender.send(HttpRequest(method="GET", path=path)), Scale)

    async def scale(
        self, kind: type[Object], key: ObjectKey, replicas: int, *, resource_version: str = "", dry_run: bool = False
    ) -> Scale:
        """Set the desired replicas of ``key`` through its scale subresource.

        Args:
            kind: kind of the object, such as Deployment.
            key: object to scale.
            replicas: desired number of replicas.
            resource_version: resourceVersion that the object must have. Otherwise Conflict is raised.
            dry_run: validate and admit the request without storing the result.

        Raises:
            NotFound: the object does not exist, or ``kind`` has no scale subresource.
            Conflict: the object has another resourceVersion.
        """
        from steersman.api.autoscaling_v1 import Scale

        body: dict[str, Any] = {"spec": {"replicas": replicas}}
        if resource_version:
            body["metadata"] = {"resourceVersion": resource_version}
        request = HttpRequest(
            method="PATCH",
            path=kind.api_resource.path(key, subresource="scale"),
            query=write_query(self._sender.field_manager, "Strict", dry_run),
            body=encode(body),
            content_type="application/merge-patch+json",
        )
        return self._sender.decode_object(await self._sender.write_subresource(request, kind, key), Scale)

    async def evict(
        self, key: ObjectKey, *, uid: str = "", grace_period_seconds: int | None = None, dry_run: bool = False
    ) -> None:
        """Delete the pod ``key`` if its PodDisruptionBudgets allow the eviction.

        Args:
            key: pod to evict.
            uid: UID that the pod must have. Otherwise Conflict is raised.
            grace_period_seconds: see ``delete``.
            dry_run: validate and admit the request without deleting.

        Raises:
            EvictionBlocked: a PodDisruptionBudget does not allow the eviction now. Retry after ``retry_after``, or
                after some seconds.
        """
        from steersman.api.core_v1 import Pod

        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "deleteOptions": options,
        }
        path = _POD.path(key, subresource="eviction")
        query = {"dryRun": "All"} if dry_run else {}
        request = HttpRequest(method="POST", path=path, query=query, body=encode(body))
        await self._sender.write_subresource(request, Pod, key)

    async def create_token(
        self, key: ObjectKey, *, audiences: Sequence[str] = (), expiration_seconds: int = 3600
    ) -> TokenRequest:
        """Create a token of the service account ``key``, returned in ``status.token``.

        Args:
            key: service account.
            audiences: recipients that accept the token. Defaults to the API server.
            expiration_seconds: requested lifetime in seconds, at least 600. The server may choose another one: see
                ``status.expiration_timestamp``.
        """
        from steersman.api.authentication_v1 import TokenRequest, TokenRequestSpec

        spec = TokenRequestSpec(audiences=tuple(audiences), expiration_seconds=expiration_seconds)
        path = _SERVICE_ACCOUNT.path(key, subresource="token")
        request = HttpRequest(method="POST", path=path, body=encode(with_type_meta(TokenRequest(spec=spec))))
        # The request changes no stored object, so the observer is not involved.
        return decode(await self._sender.send(request), TokenRequest)

    async def logs(
        self,
        key: ObjectKey,
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[str, None]:
        """Yield the log of the pod ``key``, line by line.

        Args:
            key: pod.
            container: container name. May be empty if the pod has only one container.
            follow: continue until the container ends.
            previous: yield the log of the container before its last restart.
            tail_lines: number of lines from the end. Defaults to all.
            since_seconds: maximum age of the lines in seconds. Defaults to no limit.
            timestamps: begin each line with its time in RFC 3339 format.

        Raises:
            BadRequest: the container has not started, or ``container`` is empty and the pod has several.
            NotFound: the pod does not exist.
        """
        numbers = {"tailLines": tail_lines, "sinceSeconds": since_seconds}
        flags = {"follow": follow, "previous": previous, "timestamps": timestamps}
        query = {name: str(value) for name, value in numbers.items() if value is not None}
        query |= {name: "true" for name, value in flags.items() if value}
        if container:
            query["container"] = container
        path = _POD.path(key, subresource="log")
        request = HttpRequest(method="GET", path=path, query=query, accept="*/*", timeout=_LOG_IDLE_TIMEOUT_SECONDS)
        async with self._sender.transport.stream(request) as lines:
            async for line in lines:
                yield line.decode(errors="replace")
