"""Get, change, write back: for objects that are not ours to declare whole."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from typing import Any, Literal, TypeVar, cast

from steersman.client import JsonPatch
from steersman.controller.client import CachedClient
from steersman.meta import Object, encode, to_builtins

T = TypeVar("T", bound=Object)

Outcome = Literal["created", "patched", "unchanged"]


async def create_or_patch(client: CachedClient, blank: T, mutate: Callable[[T], T]) -> tuple[T, Outcome]:
    """Makes the object be as ``mutate`` says: creates it, or sends just the difference.

    Prefer ``client.apply``, which needs no read; this is for changes that depend on what is there.

    Args:
        blank: name and namespace, and what a new object starts from.
        mutate: gives the wanted object, from the one that is there or else from ``blank``. It must leave name,
            namespace and status alone: a difference of status is not written.

    Returns:
        The object as stored, and what was done.

    Raises:
        Conflict: somebody changed the object since it was read; reconcile again.
        AlreadyExists: somebody created it in the meantime; reconcile again.
        ValueError: ``mutate`` changed the name or the namespace.
    """
    present = await client.whole(type(blank), blank.key)
    wanted = mutate(blank if present is None else present)
    if wanted.key != blank.key:
        raise ValueError(f"mutate made {wanted.key} of {blank.key}: an object cannot be renamed")
    if present is None:
        return await client.create(wanted), "created"
    operations = difference(_writable(present), _writable(wanted))
    if not operations:
        return present, "unchanged"
    # The version in the object is compared by the server, and a test operation is not answered by Conflict.
    version = {"op": "replace", "path": "/metadata/resourceVersion", "value": present.metadata.resource_version}
    return await client.patch(type(blank), blank.key, JsonPatch([*operations, version])), "patched"


def difference(old: Any, new: Any, path: str = "") -> list[dict[str, Any]]:
    """Operations (RFC 6902) that make ``new`` of ``old``, both in wire form, and touch what differs alone.

    Items of lists are recognised by their names, or else by their places, so that fields which our types do not know
    survive in those that stay. One that changes places with others is made anew.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return _members(cast("dict[str, Any]", old), cast("dict[str, Any]", new), path)
    if isinstance(old, list) and isinstance(new, list):
        return _items(cast("list[Any]", old), cast("list[Any]", new), path)
    # As JSON, since to Python 1 equals True.
    return [] if encode(old) == encode(new) else [{"op": "replace", "path": path, "value": new}]


def _members(old: dict[str, Any], new: dict[str, Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for name in sorted(old.keys() | new.keys()):
        place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in new:
            operations.append({"op": "remove", "path": place})
        elif name not in old:
            operations.append({"op": "add", "path": place, "value": new[name]})
        else:
            operations += difference(old[name], new[name], place)
    return operations


def _items(old: list[Any], new: list[Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    matcher = SequenceMatcher(
        None, [_identity(item) for item in old], [_identity(item) for item in new], autojunk=False
    )
    # From the end, so that the places before stay what they are.
    for _, begin, end, first, last in reversed(matcher.get_opcodes()):
        kept = min(end - begin, last - first)
        operations += [{"op": "remove", "path": f"{path}/{place}"} for place in range(end - 1, begin + kept - 1, -1)]
        for number in range(kept, last - first):
            operations.append({"op": "add", "path": f"{path}/{begin + number}", "value": new[first + number]})
        for number in range(kept):
            was, wanted, place = old[begin + number], new[first + number], f"{path}/{begin + number}"
            if _name(was) == _name(wanted):
                operations += difference(was, wanted, place)
            else:
                operations.append({"op": "replace", "path": place, "value": wanted})
    return operations


def _identity(item: Any) -> object:
    return encode(item) if (name := _name(item)) is None else name


def _name(item: Any) -> str | None:
    name = cast("dict[str, Any]", item).get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


def _writable(obj: Object) -> dict[str, Any]:
    document: dict[str, Any] = to_builtins(obj)
    document.pop("status", None)
    document["metadata"].pop("managedFields", None)
    return document
