"""YAML parser and writer with the rules of Kubernetes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
# Go reads a lone = and dates as strings, and has its own rules for booleans and numbers.
_REPLACED_TAGS = tuple(_TAG + name for name in ("value", "timestamp", "bool", "int", "float"))
_TRUE_WORDS = ("y", "yes", "true", "on")
_BOOL = re.compile(r"y|Y|n|N|(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)")
_INT = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_INT64_LIMIT = 2.0**63


class _KubernetesLoader(_Loader):
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in found if tag not in _REPLACED_TAGS]
        for first, found in _Loader.yaml_implicit_resolvers.items()
    }

    def construct_go_bool(self, node: Any) -> bool:
        return self.construct_scalar(node).lower() in _TRUE_WORDS

    def construct_go_number(self, node: Any) -> float | str:
        text: str = self.construct_scalar(node)
        found = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if math.isinf(found) and text[-1].isdigit():
            # Go reads a number that overflows as a string.
            return text
        return int(found) if found.is_integer() and abs(found) < _INT64_LIMIT else found

    def construct_json_object(self, node: Any) -> Iterator[Any]:
        found: dict[Any, Any] = {}
        yield found
        self.flatten_mapping(node)
        # Convert each key first, because 1 and True are the same key in Python.
        for key, value in node.value:
            found[_json_key(self.construct_object(key, deep=True))] = self.construct_object(value)


def _json_key(key: Any) -> Any:
    if isinstance(key, bool):
        return str(key).lower()
    return str(key) if isinstance(key, int) else key


for _tag_name, _pattern, _first_characters in (
    ("bool", _BOOL, "yYnNtTfFoO"),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+0123456789."),
):
    _KubernetesLoader.add_implicit_resolver(
        _TAG + _tag_name, re.compile(f"(?:{_pattern.pattern})\\Z"), list(_first_characters)
    )
_KubernetesLoader.add_constructor(f"{_TAG}bool", _KubernetesLoader.construct_go_bool)
_KubernetesLoader.add_constructor(f"{_TAG}float", _KubernetesLoader.construct_go_number)
_KubernetesLoader.add_constructor(f"{_TAG}map", _KubernetesLoader.construct_json_object)


def load_yaml_documents(text: str | bytes) -> Iterator[Any]:
    """Load all documents of a YAML or JSON text.

    Raises:
        yaml.YAMLError: the text is invalid.
    """
    return yaml.load_all(text, Loader=_KubernetesLoader)


def load_yaml(text: str | bytes) -> Any:
    """Load the only document of a YAML or JSON text. None if the text is empty.

    Raises:
        yaml.YAMLError: the text is invalid.
    """
    return yaml.load(text, Loader=_KubernetesLoader)  # noqa: S506 (a safe loader)


def dump_yaml(document: Any) -> str:
    """Format ``document`` as YAML. Keys keep their order."""
    return yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, width=118)


class _PlainDumper(yaml.SafeDumper):
    """Writes no anchors, and multi-line strings as literal blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_scalar(self, tag: str, value: Any, style: str | None = None) -> Any:
        if "\n" in value:
            style = "|"
        elif tag == f"{_TAG}str" and (_is_typed_for_go(value) or _is_typed_for_go(value.replace("_", ""))):
            style = "'"
        return super().represent_scalar(tag, value, style=style)  # pyright: ignore[reportUnknownMemberType]


def _is_typed_for_go(text: str) -> bool:
    """Return True if Go reads the unquoted ``text`` as no string.

    It ignores ``_`` in numbers.
    """
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = _KubernetesLoader.yaml_implicit_resolvers
    return any(pattern.match(text) for _, pattern in resolvers.get(text[:1], ()))
