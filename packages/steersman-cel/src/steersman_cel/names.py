"""What labels, names and their parts must look like, in the words of the API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
FIRST_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
FIRST_LABEL_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{FIRST_LABEL}')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{LABEL_VALUE}')"
)
NAME_PART = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
WITH_PREFIX = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_PART}')"
)

is_label = re.compile(LABEL).fullmatch
is_subdomain = re.compile(SUBDOMAIN).fullmatch
is_label_value = re.compile(LABEL_VALUE).fullmatch
_is_name_part = re.compile(NAME_PART).fullmatch


def subdomain_problem(value: str) -> str:
    """Why ``value`` is no RFC 1123 subdomain; empty where it is one."""
    problems = ["must be no more than 253 characters"] if len(value) > 253 else []
    return ",".join(problems if is_subdomain(value) else [*problems, SUBDOMAIN_TEXT])


def label_problem(value: str) -> str:
    """Why ``value`` is no RFC 1035 label; empty where it is one."""
    problems = ["must be no more than 63 characters"] if len(value) > 63 else []
    return ",".join(problems if re.fullmatch(FIRST_LABEL, value) else [*problems, FIRST_LABEL_TEXT])


def lower_label_problem(value: str) -> str:
    """Why ``value`` is no RFC 1123 label; empty where it is one."""
    problems = ["must be no more than 63 characters"] if len(value) > 63 else []
    return ",".join(problems if is_label(value) else [*problems, LABEL_TEXT])


def label_value_problem(value: str) -> str:
    """Why ``value`` is not the value of a label; empty where it may be."""
    problems = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return ",".join(problems if is_label_value(value) else [*problems, LABEL_VALUE_TEXT])


def label_key_problem(value: str) -> str:
    """Why ``value`` is not the key of a label; empty where it may be."""
    return ",".join(key_problems(value, "qualified name"))


@lru_cache(maxsize=4096)
def key_problems(key: str, noun: str) -> tuple[str, ...]:
    """Why ``key``, called ``noun``, is no key of labels and the like; kept, since objects have keys in common."""
    return tuple(_key_problems(key, noun))


def _key_problems(key: str, noun: str) -> Iterator[str]:
    if key.count("/") > 1:
        yield f"a valid {noun}{NAME_PART_TEXT.removeprefix('name part')}{WITH_PREFIX}"
        return
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        yield f"prefix part {SUBDOMAIN_TEXT}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 bytes"
    if not _is_name_part(name):
        yield NAME_PART_TEXT
