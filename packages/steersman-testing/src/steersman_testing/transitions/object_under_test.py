"""The object under test, written as its user would."""

from __future__ import annotations

from steersman.client import Client, FieldValidation, MergePatch, retry_on_conflict
from steersman.errors import NotFound
from steersman.meta import ApiResource, ObjectKey, Unstructured, unstructured
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.kind_under_test import KindUnderTest
from steersman_testing.transitions.observed_state import RESYNC_ANNOTATION


class ObjectUnderTest:
    """One object of the kind under test.

    Args:
        client: client of the user.
        target: the kind.
        namespace: namespace of the object. Ignored for a cluster-scoped kind.
    """

    def __init__(self, client: Client, target: KindUnderTest, namespace: str) -> None:
        self._client = client
        self._target = target
        self._namespace = namespace
        self._kind = unstructured(target.resource)

    @property
    def key(self) -> ObjectKey:
        """Key of the object."""
        return self._target.key(self._namespace)

    @property
    def resource(self) -> ApiResource:
        """Resource of the object."""
        return self._target.resource

    async def read(self) -> Unstructured | None:
        """Return the stored object, or None."""
        try:
            return await self._client.get(self._kind, self.key)
        except NotFound:
            return None

    async def write(self, document: JsonObject, validation: FieldValidation) -> Unstructured:
        """Create the object, or replace its desired state. Return the stored object. Raises ApiError."""

        async def write_once() -> Unstructured:
            found = await self.read()
            manifest = self._target.manifest(document, self._namespace)
            if found is None:
                return await self._client.create(self._kind.of(manifest), field_validation=validation)
            current = found.to_dict()
            preserved = {n: current[n] for n in ("metadata", "status") if n in current}
            return await self._client.update(self._kind.of({**manifest, **preserved}), field_validation=validation)

        return await retry_on_conflict(write_once)

    async def delete(self) -> None:
        """Request the deletion. Raises ApiError."""
        await self._client.delete(self._kind, self.key)

    async def annotate(self, value: str) -> Unstructured:
        """Set an annotation without meaning to trigger a reconcile. Raises ApiError."""
        patch = MergePatch({"metadata": {"annotations": {RESYNC_ANNOTATION: value}}})
        return await self._client.patch(self._kind, self.key, patch)
