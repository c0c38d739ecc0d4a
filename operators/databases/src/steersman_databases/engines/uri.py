"""Connection strings, for applications and for people."""

from __future__ import annotations

from urllib.parse import quote

from .server import Endpoint

MASK = "<secret>"


def connection_uri(scheme: str, endpoint: Endpoint, username: str, password: str, database: str) -> str:
    """The URI that an application connects with, `postgresql://orders:s3cret@orders-primary.ns:5432/orders`.

    `scheme` is an engine's `uri_scheme`. Everything but RFC 3986's unreserved characters is percent-encoded
    as UTF-8, so any name and any password survives the round trip.
    """
    return _uri(scheme, endpoint, username, quote(password, safe=""), database)


def jdbc_uri(scheme: str, endpoint: Endpoint, username: str, password: str, database: str) -> str:
    """The same for Java: `jdbc:postgresql://orders-primary.ns:5432/orders?user=orders&password=s3cret`."""
    credentials = f"user={quote(username, safe='')}&password={quote(password, safe='')}"
    return f"jdbc:{scheme}://{endpoint}/{quote(database, safe='')}?{credentials}"


def masked_uri(scheme: str, endpoint: Endpoint, username: str, database: str) -> str:
    """The same URI with `<secret>` in the password's place, fit for a status or a log."""
    return _uri(scheme, endpoint, username, MASK, database)


def _uri(scheme: str, endpoint: Endpoint, username: str, password: str, database: str) -> str:
    return f"{scheme}://{quote(username, safe='')}:{password}@{endpoint}/{quote(database, safe='')}"
