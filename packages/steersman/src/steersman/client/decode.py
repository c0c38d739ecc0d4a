"""From the API server's bytes to an object that may be shared and kept."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr

from steersman.errors import ConnectionFailed
from steersman.meta import FrozenDict, ManagedFieldsEntry, Object, ObjectMetadata, Unstructured, decode

R = TypeVar("R")
T = TypeVar("T", bound=Object)

_METADATA_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST_ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@cache
def accept_header(kind: type[Object], *, is_list: bool = False) -> str:
    """The media types to ask for where ``kind`` is to be read. Source: KEP-2334, "Metadata-only" of API Concepts."""
    if not issubclass(kind, ObjectMetadata):
        return "application/json"
    return _METADATA_LIST_ACCEPT if is_list else _METADATA_ACCEPT


def decode_response(raw: bytes | msgspec.Raw, kind: type[R]) -> R:
    """``raw`` (JSON) as a ``kind``.

    Raises:
        ConnectionFailed: it is no JSON, as when a proxy answers by its log-in page.
        msgspec.ValidationError: it does not fit ``kind``.
    """
    try:
        return decode(raw, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise ConnectionFailed(f"the answer is not the API server's: {error}") from error


def decode_object(raw: bytes | msgspec.Raw, kind: type[T], field_manager: str) -> T:
    """``raw`` (JSON) as a ``kind``, with no ``managedFields`` but those of ``field_manager``.

    Those of others are the larger part of many objects, and nobody acts on them; our own tell what a server-side
    apply would change.

    Raises as ``read_answer``.
    """
    obj = decode_response(raw, kind)
    if obj.metadata.managed_fields:
        own_entries = tuple([_copy_fields(e) for e in obj.metadata.managed_fields if e.manager == field_manager])
        force_setattr(obj.metadata, "managed_fields", own_entries)
        if isinstance(obj, Unstructured):
            force_setattr(obj, "content", _keep_manager(field_manager, obj.content))
    return obj


def _copy_fields(entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
    # Unparsed JSON is a view of the whole answer, which would live as long as this entry. Nobody else has it yet.
    force_setattr(entry, "fields_v1", msgspec.Raw(bytes(entry.fields_v1)))
    return entry


def _keep_manager(manager: str, content: FrozenDict[str, Any]) -> FrozenDict[str, Any]:
    metadata: FrozenDict[str, Any] = content["metadata"]
    own_entries = tuple(e for e in metadata["managedFields"] if e.get("manager") == manager)
    kept_metadata = {k: v for k, v in metadata.items() if k != "managedFields"} | (
        {"managedFields": own_entries} if own_entries else {}
    )
    return FrozenDict({**content, "metadata": FrozenDict(kept_metadata)})
