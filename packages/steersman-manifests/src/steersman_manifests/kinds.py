"""Import of kinds by module name."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any, TypeGuard

from steersman.errors import ConfigurationError
from steersman.meta import Object
from steersman.meta.custom_resource import is_decorated

KindType = type[Object]


def find_kinds(reference: str) -> tuple[KindType, ...]:
    """Import the kinds of ``package.module``, or only ``package.module:Kind``.

    Kinds that the module re-exports are included.

    Raises:
        ConfigurationError: the module does not exist, or does not declare the kind.
    """
    name, _, kind = reference.partition(":")
    kinds = kinds_in(_import_module(name))
    if not kind:
        if not kinds:
            raise ConfigurationError(f"{name} declares no kind: put @resource(group=…, version=…) above a class")
        return tuple(kinds.values())
    if kind not in kinds:
        raise ConfigurationError(f"{name} declares no kind {kind} (it declares: {', '.join(kinds) or 'none'})")
    return (kinds[kind],)


def _import_module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # Only the named module may be missing. An import error within it is raised as it is.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigurationError(f"the module {name} does not exist") from None
    except ValueError:
        raise ConfigurationError(f"{name!r} is not a module: write package.module:Kind") from None


def kinds_in(module: ModuleType) -> dict[str, KindType]:
    """The kinds among the names of ``module``."""
    return {name: value for name, value in vars(module).items() if _is_kind(value)}


def _is_kind(value: Any) -> TypeGuard[KindType]:
    return isinstance(value, type) and issubclass(value, Object) and is_decorated(value)
