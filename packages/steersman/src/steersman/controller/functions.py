"""Reconcilers that are plain functions."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from steersman.controller.object_form import ObjectForm
from steersman.controller.reconciler import Reconciler, ReconcilerContext, RequestReconciler, Result
from steersman.controller.threads import ThreadReconciler
from steersman.errors import ConfigurationError
from steersman.meta import Object

T = TypeVar("T", bound=Object)

ReconcileFunc = Callable[[ReconcilerContext, T], Awaitable[Result | None]]
"""``async def reconcile(ctx, obj)``."""


class FunctionReconciler(Reconciler[T]):
    """The reconciler of a coroutine function."""

    def __init__(self, context: ReconcilerContext, function: ReconcileFunc[T]) -> None:
        super().__init__(context)
        self._function = function

    async def reconcile(self, obj: T) -> Result | None:
        """Call the function."""
        return await self._function(self.context, obj)


def _function_reconciler(context: ReconcilerContext, function: Callable[..., Any]) -> Reconciler[Any]:
    # A decorator with functools.wraps may return the coroutine of an async function from a plain one.
    unwrapped = inspect.unwrap(function)
    if inspect.iscoroutinefunction(unwrapped) or inspect.iscoroutinefunction(type(unwrapped).__call__):
        return FunctionReconciler(context, function)
    return ThreadReconciler(context, function)


def is_reconcile_function(factory: Callable[..., Any]) -> bool:
    """Return True if ``factory`` takes a context and an object."""
    if inspect.isclass(factory):
        return False
    parameters = inspect.signature(factory).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([p for p in parameters if p.kind in positional and p.default is p.empty]) == 2


def new_reconciler(
    factory: Callable[..., Any], context: ReconcilerContext, kind: type[T], controller: str
) -> RequestReconciler[Any]:
    """Create the reconciler of a controller, in the request form.

    Args:
        factory: the argument of ``Builder.complete``.
        context: the context of the reconciler.
        kind: the reconciled kind.
        controller: the name of the controller.

    Raises:
        ConfigurationError: ``factory`` creates something else, or the finalizer has an invalid name.
    """
    made: object = _function_reconciler(context, factory) if is_reconcile_function(factory) else factory(context)
    if isinstance(made, RequestReconciler):
        return cast("RequestReconciler[Any]", made)
    if not isinstance(made, Reconciler):
        raise ConfigurationError(
            f"controller {controller!r}: complete() needs a Reconciler, a RequestReconciler, a function that returns "
            f"one, or async def reconcile(ctx, obj); {factory!r} returned {made!r}"
        )
    return ObjectForm(context, kind, cast("Reconciler[T]", made), controller)
