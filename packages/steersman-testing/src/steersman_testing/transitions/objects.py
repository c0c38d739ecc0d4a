"""The explored object, written as its user would."""

from __future__ import annotations

from steersman.client import Client, FieldValidation, MergePatch, retry_on_conflict
from steersman.errors import NotFound
from steersman.meta import ApiResource, ObjectKey, Unstructured, unstructured
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.states import LOOK_AGAIN
from steersman_testing.transitions.subject import Subject


class TrialObject:
    """One object of the explored kind.

    Args:
        client: of the user.
        subject: the kind.
        namespace: of the object; nothing for a cluster-scoped kind.
    """

    def __init__(self, client: Client, subject: Subject, namespace: str) -> None:
        self._client = client
        self._subject = subject
        self._namespace = namespace
        self._kind = unstructured(subject.resource)

    @property
    def key(self) -> ObjectKey:
        """Where it is."""
        return self._subject.key(self._namespace)

    @property
    def resource(self) -> ApiResource:
        """What it is."""
        return self._subject.resource

    async def read(self) -> Unstructured | None:
        """As it is now, or None."""
        try:
            return await self._client.get(self._kind, self.key)
        except NotFound:
            return None

    async def write(self, document: JsonObject, validation: FieldValidation) -> Unstructured:
        """Creates it, or replaces what its user wrote; gives what is stored then. Raises ApiError."""

        async def once() -> Unstructured:
            found = await self.read()
            wanted = self._subject.manifest(document, self._namespace)
            if found is None:
                return await self._client.create(self._kind.of(wanted), field_validation=validation)
            there = found.to_dict()
            kept = {n: there[n] for n in ("metadata", "status") if n in there}
            return await self._client.update(self._kind.of({**wanted, **kept}), field_validation=validation)

        return await retry_on_conflict(once)

    async def delete(self) -> None:
        """Asks for its deletion. Raises ApiError."""
        await self._client.delete(self._kind, self.key)

    async def touch(self, mark: str) -> Unstructured:
        """Sets the annotation that means nothing to ``mark``; gives what is stored then. Raises ApiError."""
        patch = MergePatch({"metadata": {"annotations": {LOOK_AGAIN: mark}}})
        return await self._client.patch(self._kind, self.key, patch)
