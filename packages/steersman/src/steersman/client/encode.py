"""What is sent: objects, apply configurations and statuses in wire form."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

from steersman.meta import ApplyConfiguration, Object, ObjectKey, to_builtins
from steersman.meta.frozen import FrozenStruct

T = TypeVar("T", bound=Object)


def kind_of(obj: T | ApplyConfiguration[T]) -> type[T]:
    """The read type of ``obj``."""
    kind: Any = obj.read_type if isinstance(obj, ApplyConfiguration) else type(obj)
    return kind


def with_type_meta(obj: Object | ApplyConfiguration[Any]) -> dict[str, Any]:
    """``obj`` with its apiVersion and kind."""
    document = to_builtins(obj)
    # The server's record: who sends it back would claim what others own. Reviews have no metadata.
    if (metadata := document.get("metadata")) is not None:
        metadata.pop("managedFields", None)
    return {**_type_meta(kind_of(obj)), **document}


def with_owner(obj: Object | ApplyConfiguration[Any], owner: Object | None = None) -> dict[str, Any]:
    """``obj`` with its type, and with ``owner`` as its controller. Raises as ``owner_reference`` does."""
    document = with_type_meta(obj)
    if owner is not None:
        document["metadata"].setdefault("ownerReferences", []).append(owner_reference(owner, obj.key))
    return document


def status_document(
    obj: Object, status: FrozenStruct | Mapping[str, Any], resource_version: str = ""
) -> dict[str, Any]:
    """The whole ``status`` of ``obj``, zeros included."""
    meta = obj.metadata
    identity = {"name": meta.name, "namespace": meta.namespace, "resourceVersion": resource_version}
    return {
        **_type_meta(type(obj)),
        "metadata": {k: v for k, v in identity.items() if v},
        "status": _encode_all_fields(status),
    }


def owner_reference(owner: Object, dependent: ObjectKey) -> dict[str, Any]:
    """The controller reference to ``owner``, in wire form.

    Raises:
        ValueError: ``owner`` lives in another namespace than ``dependent``; the garbage collector would delete
            the dependent at once. Source: "Owners and Dependents".
    """
    if owner.metadata.namespace and owner.metadata.namespace != dependent.namespace:
        raise ValueError(f"{owner.key} cannot own {dependent}: an owner lives in the same namespace or in none")
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
    """``value`` in wire form with every field that is not None, so that a zero is seen in ``kubectl get``."""
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
