"""Kinds by the place where they are declared."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, TypeGuard

from steersman.errors import ConfigurationError
from steersman.meta import Object
from steersman.meta.declaration import is_declared

Kind = type[Object]


def find_kinds(place: str) -> tuple[Kind, ...]:
    """The kinds that ``place`` names: ``package.module`` for all that it declares or re-exports, or one of them as
    ``package.module:Kind``.

    Raises:
        ConfigurationError: there is no such module, or no such kind in it.
    """
    name, _, kind = place.partition(":")
    declared = declared_in(_module(name))
    if not kind:
        if not declared:
            raise ConfigurationError(f"{name} declares no kind: put @resource(group=…, version=…) above a class")
        return tuple(declared.values())
    if kind not in declared:
        raise ConfigurationError(f"{name} declares no kind {kind} (it declares: {', '.join(declared) or 'none'})")
    return (declared[kind],)


def _module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # Only if it is this module that is missing: what an existing one fails to import is its own error.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f"there is no module {name}") from None
    except ValueError:
        raise ConfigurationError(f"{name!r} is not a module: write package.module:Kind") from None


def declared_in(module: ModuleType) -> dict[str, Kind]:
    """The kinds among the names of ``module``."""
    return {name: value for name, value in vars(module).items() if _is_declared(value)}


def _is_declared(value: Any) -> TypeGuard[Kind]:
    return isinstance(value, type) and issubclass(value, Object) and is_declared(value)
