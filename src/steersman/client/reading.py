"""From the API server's bytes to an object that may be shared and kept."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from steersman.meta import ManagedFieldsEntry, Object, decode

T = TypeVar("T", bound=Object)


def read_object(raw: bytes | msgspec.Raw, kind: type[T], field_manager: str) -> T:
    """``raw`` (JSON) as a ``kind``, with no ``managedFields`` but those of ``field_manager``.

    Those of others are the larger part of many objects, and nobody acts on them; our own tell what a server-side
    apply would change.

    Raises:
        msgspec.ValidationError: it does not fit ``kind``.
    """
    obj = decode(raw, kind)
    if obj.metadata.managed_fields:
        own = tuple(_kept(e) for e in obj.metadata.managed_fields if e.manager == field_manager)
        force_setattr(obj.metadata, "managed_fields", own)
    return obj


def _kept(entry: ManagedFieldsEntry) -> ManagedFieldsEntry:
    # Unparsed JSON is a view of the whole answer, which would live as long as this entry.
    return replace(entry, fields_v1=msgspec.Raw(bytes(entry.fields_v1)))
