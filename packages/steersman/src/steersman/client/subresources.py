"""What lies below an object's path: scale, eviction, token and log.

The built-in kinds are imported where they are needed: whoever needs no pods does not wait for hundreds of types.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

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
# A pod may log nothing for hours; the kubelet ends streams that are silent for four. Keep-alives notice a dead peer.
_LOG_IDLE_TIMEOUT_SECONDS = 4 * 3600.0


class SubresourceClient:
    """The verbs of ``Client`` that are not about whole objects."""

    def __init__(self, sender: RequestSender) -> None:
        self._sender = sender

    async def get_scale(self, kind: type[Object], key: ObjectKey) -> Scale:
        """How many replicas ``key`` wants and has. Raises NotFound, also where ``kind`` has no scale."""
        from steersman.api.autoscaling_v1 import Scale

        path = kind.api_resource.path(key, subresource="scale")
        return self._sender.decode_object(await self._sender.send(HttpRequest(method="GET", path=path)), Scale)

    async def scale(
        self, kind: type[Object], key: ObjectKey, replicas: int, *, resource_version: str = "", dry_run: bool = False
    ) -> Scale:
        """Asks for ``replicas`` of ``key``, through its scale subresource.

        Args:
            resource_version: only if the object is unchanged since; otherwise Conflict.
            dry_run: do all but store it.

        Raises:
            NotFound: there is no such object, or ``kind`` has no scale.
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
        """Deletes the pod ``key``, if its PodDisruptionBudgets allow that.

        Args:
            uid: only if the pod still is this one; otherwise Conflict.
            grace_period_seconds: see ``delete``.
            dry_run: do all but delete it.

        Raises:
            EvictionBlocked: a budget does not allow it now; ask again after ``retry_after``, or some seconds.
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
        """A token of the service account ``key``, in ``status.token``.

        Args:
            audiences: who shall accept it; empty for the API server.
            expiration_seconds: at least 600. The server may decide otherwise: see ``status.expiration_timestamp``.
        """
        from steersman.api.authentication_v1 import TokenRequest, TokenRequestSpec

        spec = TokenRequestSpec(audiences=tuple(audiences), expiration_seconds=expiration_seconds)
        path = _SERVICE_ACCOUNT.path(key, subresource="token")
        request = HttpRequest(method="POST", path=path, body=encode(with_type_meta(TokenRequest(spec=spec))))
        # It changes no object: no cache is older for it.
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
        """The log of the pod ``key``, line by line.

        Args:
            container: may be empty where the pod has only one.
            follow: go on until the container ends.
            previous: of the container's run before the last restart.
            tail_lines: only so many from the end.
            since_seconds: only what is younger.
            timestamps: begin each line with its time, as RFC 3339.

        Raises:
            BadRequest: the container has not started, or there are several.
            NotFound: there is no such pod.
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
