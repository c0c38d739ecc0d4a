"""The explored object, written as its user would."""

from __future__ import annotations

from steersman.client import Client, FieldValidation, MergePatch, retry_on_conflict
from steersman.errors import NotFound
from steersman.meta import ApiResource, ObjectKey, Unstructured, unstructured
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.kind_under_test import KindUnderTest
from steersman_testing.transitions.observed_state import RESYNC_ANNOTATION


class ObjectUnderTest:
    """One object of the explored kind.

    Args:
        client: of the user.
        subject: the kind.
        namespace: of the object; nothing for a cluster-scoped kind.
    """

    def __init__(self, client: Client, target: KindUnderTest, namespace: str) -> None:
        self._client = client
        self._target = target
        self._namespace = namespace
        self._kind = unstructured(target.resource)

    @property
    def key(self) -> ObjectKey:
        """Where it is."""
        return self._target.key(self._namespace)

    @property
    def resource(self) -> ApiResource:
        """What it is."""
        return self._target.resource

    async def read(self) -> Unstructured | None:
        """As it is now, or None."""
        try:
            return await self._client.get(self._kind, self.key)
        except NotFound:
            return None

    async def write(self, document: JsonObject, validation: FieldValidation) -> Unstructured:
        """Creates it, or replaces what its user wrote; gives what is stored then. Raises ApiError."""

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
        """Asks for its deletion. Raises ApiError."""
        await self._client.delete(self._kind, self.key)

    async def annotate(self, value: str) -> Unstructured:
        """Sets the annotation that means nothing to ``mark``; gives what is stored then. Raises ApiError."""
        patch = MergePatch({"metadata": {"annotations": {RESYNC_ANNOTATION: value}}})
        return await self._client.patch(self._kind, self.key, patch)
