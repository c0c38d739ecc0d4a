"""Permissions of users for what the operator does for them."""

from __future__ import annotations

import asyncio

from steersman.api.core_v1 import Secret
from steersman.client import Client
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman.webhook import AdmissionRequest, FieldError
from steersman_databases.api import BackupStore, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.secret_references import ReferencedSecret, ReferencingObject, referenced_secrets
from steersman_databases.engines.connection.input_limits import MAX_REVIEWED_SECRETS
from steersman_databases.webhooks.access_reviews import AccessReviews
from steersman_databases.webhooks.field_rights import FieldRight, privileged_values

_CLUSTERS = (PostgreSQLCluster, MySQLCluster)


class AuthorizationCheck:
    """Requests access reviews of users from the API server.

    Args:
        client: the operator's.
        clock: of the operator.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._reviews = AccessReviews(client, clock)

    async def check(
        self, obj: ReferencingObject, previous: ReferencingObject | None, request: AdmissionRequest
    ) -> list[FieldError]:
        """Return the missing permissions for new parts of the object.

        All parts of a new object are new.
        """
        previous_uses = _previous_uses(obj, previous)
        named = [each for each in referenced_secrets(obj) if _use_of(each) not in previous_uses]
        keys = list(dict.fromkeys(each.key for each in named))
        if len(keys) > MAX_REVIEWED_SECRETS:
            return [FieldError("spec", f"refers to {len(keys)} Secrets: the limit is {MAX_REVIEWED_SECRETS}")]
        allowed = dict(zip(keys, await asyncio.gather(*(self._may_read(k, request) for k in keys)), strict=True))
        causes = [_secret_error(each, request) for each in named if not allowed[each.key]]
        changed_fields = _changed_privileged_fields(obj, previous)
        rights = list(dict.fromkeys(changed_fields.values()))
        has_right = dict(zip(rights, await asyncio.gather(*(self._may(r, request) for r in rights)), strict=True))
        refused = {field: right for field, right in changed_fields.items() if not has_right[right]}
        return causes + [_right_error(field, right, request) for field, right in refused.items()]

    async def _may_read(self, secret: ObjectKey, request: AdmissionRequest) -> bool:
        return await self._reviews.is_allowed(
            request.user, "get", Secret, namespace=secret.namespace, name=secret.name
        )

    async def _may(self, right: FieldRight, request: AdmissionRequest) -> bool:
        return await self._reviews.is_allowed(request.user, right.verb, right.kind, namespace=request.namespace)


def _use_of(named: ReferencedSecret) -> tuple[str, ObjectKey, tuple[str, ...]]:
    """Return the use of the Secret, without its list position."""
    return named.field.partition("[")[0], named.key, named.keys


def _previous_uses(
    obj: ReferencingObject, previous: ReferencingObject | None
) -> set[tuple[str, ObjectKey, tuple[str, ...]]]:
    """Return the uses that an earlier request was checked for.

    A change of the server or of the object store changes who receives the Secrets: their uses are checked again.
    """
    if previous is None:
        return set()
    uses = {_use_of(each) for each in referenced_secrets(previous)}
    if isinstance(obj, _CLUSTERS) or isinstance(previous, _CLUSTERS):
        return uses
    if isinstance(obj, BackupStore) or isinstance(previous, BackupStore):
        return uses if _recipients(obj) == _recipients(previous) else set()
    same = obj.spec.server_ref == previous.spec.server_ref
    return {use for use in uses if same or not use[0].startswith("spec.serverRef.")}


def _recipients(obj: ReferencingObject) -> object:
    """Return the object store and namespaces of a ``BackupStore``'s Secrets."""
    if not isinstance(obj, BackupStore):
        return None
    spec = obj.spec
    return (spec.s3, spec.gcs, spec.azure, frozenset(spec.allowed_namespaces))


def _changed_privileged_fields(obj: ReferencingObject, previous: ReferencingObject | None) -> dict[str, FieldRight]:
    """Return fields with new values that need a right."""
    previous_values = {} if previous is None else privileged_values(previous, previous)
    return {
        field: right
        for field, (value, right) in privileged_values(obj, previous).items()
        if value is not None and previous_values.get(field, (None, right))[0] != value
    }


def _secret_error(named: ReferencedSecret, request: AdmissionRequest) -> FieldError:
    namespace, name = named.key.namespace, named.key.name
    return FieldError(
        named.field,
        f'user "{request.user.username}" may not get Secret {name} in namespace {namespace}, which the operator '
        f"would use for them: let a permitted user apply it, or grant get of secrets with resourceNames [{name}] "
        "by a "
        f"Role in {namespace}",
        reason="FieldValueForbidden",
    )


def _right_error(field: str, right: FieldRight, request: AdmissionRequest) -> FieldError:
    is_image = field.lower().endswith("image")
    alternative = " to use the operator's" if is_image else ""
    return FieldError(
        field,
        f'user "{request.user.username}" may not {right.verb} {right.plural} in namespace {request.namespace}, which '
        f"the operator would do for them: remove it{alternative}, or let a permitted user apply it",
        reason="FieldValueForbidden",
    )
