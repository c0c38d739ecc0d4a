"""Applies dependents step by step, and prunes undeclared ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from steersman.cache.cached_client import CachedClient
from steersman.dependents.declaration import Dependent, Step, identity_of, normalize_steps, with_label
from steersman.dependents.state import BlockingDependent, DependentsState, PrunedObject
from steersman.errors import ConfigurationError, NotFound
from steersman.meta import Object

DEPENDENT_OF_LABEL = "steersman.dev/dependent-of"
"""The label of applied dependents. Its value has the form ``<operator>.<controller>``."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Dependents:
    """Applies the dependents of owners. Reconcilers have it as ``self.dependents``.

    Args:
        client: client of the reconciler.
        controller: name of the operator and its controller, the value of the label.
        owned: kinds that the builder declared with ``owns``. None allows all kinds.
        prunable: kinds that the builder declared with ``prune=True``.
        report: receives the owner and the state of each call.
    """

    def __init__(
        self,
        client: CachedClient,
        *,
        controller: str = "steersman",
        owned: Collection[type[Object]] | None = None,
        prunable: Collection[type[Object]] = (),
        report: Callable[[Object, DependentsState], None] | None = None,
    ) -> None:
        self._client = client
        self._controller = controller
        self._owned = None if owned is None else {kind.api_resource for kind in owned}
        self._prunable = tuple(prunable)
        self._report = report
        if self._prunable:
            self._require_declaration(())

    async def apply(self, owner: Object, steps: Iterable[Step], *, prune_limit: float = 0.5) -> DependentsState:
        """Apply ``steps`` in order, as far as they are ready.

        When all steps are ready, it deletes the owner's dependents of prunable kinds that are not declared. Call it
        once per reconcile, with all dependents.

        Args:
            owner: the controller owner of all dependents.
            steps: all dependents. A step starts when the previous one is ready.
            prune_limit: the largest part of the owner's dependents to delete at once, 0 to 1. Defaults to 0.5.

        Raises:
            AlreadyOwned, NotOwned: an object is not controlled by ``owner``.
            ConfigurationError: a kind is not declared with ``owns``, or the label value is invalid.
            Conflict: an object to prune has changed; reconcile again.
            TypeError: a step is a list: write a tuple.
            ValueError: an object is declared twice, or ``prune_limit`` is out of range.
        """
        if not 0 <= prune_limit <= 1:
            raise ValueError(f"prune_limit must be between 0 and 1, not {prune_limit}")
        declared = normalize_steps(steps)
        self._require_declaration(declared)
        objects: list[Object] = []
        for step in declared:
            blocking: list[BlockingDependent] = []
            for dependent in step:
                obj = await self._apply(dependent, owner)
                objects.append(obj)
                readiness = dependent.readiness(obj)
                if not readiness.ready:
                    kind = dependent.kind.api_resource.kind
                    blocking.append(BlockingDependent(kind, dependent.key, readiness.message, readiness.failed))
            if blocking:
                total = sum(len(each) for each in declared)
                return self._reported(owner, DependentsState(tuple(objects), tuple(blocking), total=total))
        return self._reported(owner, await self._prune(owner, declared, tuple(objects), prune_limit))

    async def _apply(self, dependent: Dependent, owner: Object) -> Object:
        config = with_label(dependent.config, DEPENDENT_OF_LABEL, self._controller)
        return await self._client.apply(config, owner=owner)

    async def _prune(
        self, owner: Object, declared: Sequence[Sequence[Dependent]], objects: tuple[Object, ...], limit: float
    ) -> DependentsState:
        """Delete undeclared dependents of ``owner``, unless they are too many."""
        identities = {identity_of(each.kind, each.key) for each in chain.from_iterable(declared)}
        labels = {DEPENDENT_OF_LABEL: self._controller}
        undeclared = [
            obj
            for kind in self._prunable
            for obj in await self._client.list(kind, labels=labels, owner=owner)
            if identity_of(kind, obj.key) not in identities and obj.metadata.deletion_timestamp is None
        ]
        # Without terminating objects: a slow finalizer would raise the limit.
        total = len(identities) + len(undeclared)
        # Sorted, so that repeated Events have the same text.
        names = tuple(sorted((PrunedObject(type(obj).api_resource.kind, obj.key) for obj in undeclared), key=str))
        if len(undeclared) > total * limit:
            return DependentsState(objects, unpruned=names, total=total)
        for obj in undeclared:
            await self._delete(obj)
        return DependentsState(objects, pruned=names, total=len(identities))

    async def _delete(self, obj: Object) -> None:
        meta = obj.metadata
        try:
            # The version protects an object that has lost our label or controller reference meanwhile.
            await self._client.delete(type(obj), obj.key, uid=meta.uid, resource_version=meta.resource_version)
        except NotFound:
            return

    def _require_declaration(self, declared: Sequence[Sequence[Dependent]]) -> None:
        if not _LABEL_VALUE.fullmatch(self._controller):
            raise ConfigurationError(
                f"{self._controller!r} is not a label value: set another controller name with .named(...)"
            )
        if self._owned is None:
            return
        for dependent in chain.from_iterable(declared):
            resource = dependent.kind.api_resource
            if resource not in self._owned:
                raise ConfigurationError(
                    f"{resource.kind} {dependent.key} is not a dependent of controller {self._controller!r}: declare "
                    f".owns({resource.kind}), so that its changes reconcile the owner"
                )

    def _reported(self, owner: Object, state: DependentsState) -> DependentsState:
        if self._report is not None:
            self._report(owner, state)
        return state
