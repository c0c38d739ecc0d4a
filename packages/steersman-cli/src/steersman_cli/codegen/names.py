"""Python names for names in JSON, and summaries of descriptions."""

from __future__ import annotations

import keyword
import re
from functools import cache

import msgspec

# Two adjacent acronyms, which no rule can separate.
_IRREGULAR = {"openAPIV3Schema": "open_api_v3_schema"}
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_]")
_PLURAL_ACRONYM = re.compile(r"([A-Z]{2,})s(?=$|[A-Z])")
_WORD_START = re.compile(r"(?<=[a-z0-9])([A-Z])")
_ACRONYM_END = re.compile(r"([A-Z]+)([A-Z][a-z])")
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!etc)[.!?](?=\s|$)")
_MAX_SENTENCE_LENGTH = 400
# Modules of versions that Kubernetes serves in addition to the preferred version of the group.
_OTHER_VERSIONS = frozenset({"autoscaling_v1"})


def attribute_name(wire: str) -> str:
    """``clusterIPs`` → ``cluster_ips``, ``from`` → ``from_``, ``$ref`` → ``ref``, ``2xx`` → ``n2xx``."""
    if wire in _IRREGULAR:
        return _IRREGULAR[wire]
    text = _INVALID_CHARACTERS.sub("_", wire.lstrip("$"))
    text = _PLURAL_ACRONYM.sub(lambda m: f"_{m[1].lower()}s", text)
    text = _ACRONYM_END.sub(r"\1_\2", _WORD_START.sub(r"_\1", text))
    text = text.lower().lstrip("_")
    if not text or text[0].isdigit():
        text = f"n{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def class_name_part(wire: str) -> str:
    """A class name part: ``remoteWrite`` → ``RemoteWrite``, ``a-b`` → ``AB``."""
    return "".join(part[0].upper() + part[1:] for part in _INVALID_CHARACTERS.split(wire) if part and part != "_")


def module_name(group: str, version: str) -> str:
    """``cert-manager.io`` and ``v1`` → ``cert_manager_io_v1``."""
    return _INVALID_CHARACTERS.sub("_", f"{group}_{version}").lower()


def apply_module_name(module: str) -> str:
    """The module of apply configurations for a built-in module: ``apps_v1`` → ``apps``.

    Only versions that are not the preferred one of their group keep the version in the name.
    """
    return module if module in _OTHER_VERSIONS else module.rpartition("_")[0]


@cache
def is_msgspec_camel(attribute_name: str, wire: str) -> bool:
    """Return True if msgspec's camel-case renaming of the attribute gives ``wire``."""
    struct = msgspec.defstruct("Probe", [(attribute_name, str)], rename="camel")
    return struct.__struct_encode_fields__ == (wire,)


def first_sentence(description: str) -> str:
    """The first sentence on one line, shortened to 400 characters."""
    text = " ".join(description.split("\n\n")[0].split())
    end = _SENTENCE_END.search(text)
    text = text[: end.end()] if end else text
    if len(text) > _MAX_SENTENCE_LENGTH:
        text = f"{text[:_MAX_SENTENCE_LENGTH].rsplit(' ', 1)[0]} …"
    return text
