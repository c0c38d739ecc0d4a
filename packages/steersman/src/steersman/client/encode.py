"""Encoding of request bodies: objects, apply configurations and statuses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

from steersman.meta import ApplyConfiguration, Object, ObjectKey, Unstructured, to_builtins
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)

_JSON_SCALARS = (str, int, bool)


def kind_of(obj: T | ApplyConfiguration[T]) -> type[T]:
    """Return the type in which the server's response to ``obj`` is read."""
    kind: Any = obj.read_type if isinstance(obj, ApplyConfiguration) else type(obj)
    return kind


def require_applicable(config: Any) -> None:
    """Raise TypeError unless ``config`` declares only the fields to own.

    Raise ValueError if it has no namespace: the server would respond with "404 page not found".
    """
    if isinstance(config, ApplyConfiguration):
        kind: type[Object] = config.read_type
    elif isinstance(config, Unstructured):
        kind = type(config)
        if config.metadata.creation_timestamp is not None or config.metadata.managed_fields:
            raise TypeError(
                f"{config.key} was read from the server: apply() requires a configuration with only the fields to own"
            )
    else:
        raise TypeError(
            f"apply() requires an apply type, not the read type {type(config).__name__}: see steersman.api.apply"
        )
    if kind.api_resource.namespaced and not config.metadata.namespace:
        raise ValueError(
            f"{kind.api_resource.kind} {config.metadata.name} has no namespace: set metadata.namespace, or declare a"
            " cluster-scoped kind with namespaced=False"
        )


def with_type_meta(obj: Object | ApplyConfiguration[Any]) -> dict[str, Any]:
    """Return ``obj`` as JSON values with apiVersion and kind."""
    document = to_builtins(obj)
    # Sending managedFields would claim the fields of other managers. Review objects have no metadata.
    if (metadata := document.get("metadata")) is not None:
        metadata.pop("managedFields", None)
    return {**_type_meta(kind_of(obj)), **document}


def key_of(obj: Object | ApplyConfiguration[Any]) -> ObjectKey:
    """Return the key under which the API server stores ``obj``."""
    return scoped_key(kind_of(obj), obj.key)


def scoped_key(kind: type[Object], key: ObjectKey) -> ObjectKey:
    """Return ``key`` without the namespace of a cluster-scoped kind."""
    return key if kind.api_resource.namespaced or not key.namespace else ObjectKey("", key.name)


def with_owner(obj: Object | ApplyConfiguration[Any], owner: Object | None = None) -> dict[str, Any]:
    """Return ``obj`` as JSON values with apiVersion, kind and controller owner.

    Raises:
        ValueError: ``owner`` is in another namespace.
    """
    document = with_type_meta(obj)
    if owner is not None:
        document["metadata"].setdefault("ownerReferences", []).append(owner_reference(owner, key_of(obj)))
    return document


def status_document(
    obj: Object, status: FrozenStruct | Mapping[str, Any], resource_version: str = ""
) -> dict[str, Any]:
    """Return the body of a status update, including fields with zero values."""
    meta = obj.metadata
    identity = {"name": meta.name, "namespace": meta.namespace, "resourceVersion": resource_version}
    return {
        **_type_meta(type(obj)),
        "metadata": {k: v for k, v in identity.items() if v},
        "status": _encode_all_fields(status),
    }


def owner_reference(owner: Object, dependent: ObjectKey) -> dict[str, Any]:
    """Return the owner reference of ``dependent`` to its controller ``owner``.

    Raises:
        ValueError: ``owner`` is in another namespace than ``dependent``, so the garbage collector would delete
            ``dependent``.

    Source: "Owners and Dependents".
    """
    if owner.metadata.namespace and owner.metadata.namespace != dependent.namespace:
        raise ValueError(
            f"{owner.key} cannot own {dependent}: an owner must be in the same namespace or cluster-scoped"
        )
    return {
        **_type_meta(type(owner)),
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@lru_cache(maxsize=1024)
def _type_meta(kind: type[Object]) -> Mapping[str, Any]:
    return {"apiVersion": kind.api_resource.api_version, "kind": kind.api_resource.kind}


def _encode_all_fields(value: Any) -> Any:
    """Return ``value`` as JSON values with all fields except None.

    Zero values are included, so that ``kubectl get`` shows them.
    """
    if type(value) in _JSON_SCALARS:
        return value
    if isinstance(value, FrozenStruct):
        fields = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {
            encoded_name: _encode_all_fields(v)
            for encoded_name, name in fields
            if (v := getattr(value, name)) is not None
        }
    if isinstance(value, tuple):
        return [_encode_all_fields(v) for v in cast("tuple[Any, ...]", value)]
    return to_builtins(value)
