"""Validation of names and labels, with the messages of the API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

DNS1123_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS1123_SUBDOMAIN = rf"{DNS1123_LABEL}(\.{DNS1123_LABEL})*"
DNS1123_SUBDOMAIN_ERROR = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{DNS1123_SUBDOMAIN}')"
)
DNS1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
DNS1035_LABEL_ERROR = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{DNS1035_LABEL}')"
)
DNS1123_LABEL_ERROR = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{DNS1123_LABEL}')"
)
LABEL_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
LABEL_VALUE_ERROR = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{LABEL_VALUE}')"
)
QUALIFIED_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
QUALIFIED_NAME_PREFIX_HINT = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
QUALIFIED_NAME_ERROR = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED_NAME}')"
)

is_dns1123_label = re.compile(DNS1123_LABEL).fullmatch
is_dns1123_subdomain = re.compile(DNS1123_SUBDOMAIN).fullmatch
is_label_value = re.compile(LABEL_VALUE).fullmatch
_is_qualified_name = re.compile(QUALIFIED_NAME).fullmatch


def dns1123_subdomain_error(value: str) -> str:
    """The error if ``value`` is not an RFC 1123 subdomain, or empty."""
    errors = ["must be no more than 253 characters"] if len(value) > 253 else []
    return ",".join(errors if is_dns1123_subdomain(value) else [*errors, DNS1123_SUBDOMAIN_ERROR])


def dns1035_label_error(value: str) -> str:
    """The error if ``value`` is not an RFC 1035 label, or empty."""
    errors = ["must be no more than 63 characters"] if len(value) > 63 else []
    return ",".join(errors if re.fullmatch(DNS1035_LABEL, value) else [*errors, DNS1035_LABEL_ERROR])


def dns1123_label_error(value: str) -> str:
    """The error if ``value`` is not an RFC 1123 label, or empty."""
    errors = ["must be no more than 63 characters"] if len(value) > 63 else []
    return ",".join(errors if is_dns1123_label(value) else [*errors, DNS1123_LABEL_ERROR])


def label_value_error(value: str) -> str:
    """The error if ``value`` is not a label value, or empty."""
    errors = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return ",".join(errors if is_label_value(value) else [*errors, LABEL_VALUE_ERROR])


def qualified_name_error(value: str) -> str:
    """The error if ``value`` is not a qualified name, or empty."""
    return ",".join(label_key_errors(value, "qualified name"))


@lru_cache(maxsize=4096)
def label_key_errors(key: str, noun: str) -> tuple[str, ...]:
    """Errors of a label or annotation key. Cached, since objects share keys.

    Args:
        key: key with an optional prefix.
        noun: name of the key in messages.
    """
    return tuple(_label_key_errors(key, noun))


def _label_key_errors(key: str, noun: str) -> Iterator[str]:
    if key.count("/") > 1:
        yield f"a valid {noun}{QUALIFIED_NAME_ERROR.removeprefix('name part')}{QUALIFIED_NAME_PREFIX_HINT}"
        return
    prefix, slash, name = key.rpartition("/")
    if slash and not is_dns1123_subdomain(prefix):
        yield f"prefix part {DNS1123_SUBDOMAIN_ERROR}"
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 bytes"
    if not _is_qualified_name(name):
        yield QUALIFIED_NAME_ERROR
