"""Connection strings, for applications and for people."""

from __future__ import annotations

from urllib.parse import quote

from steersman_databases.engines.server import ServerEndpoint

MASK = "<secret>"


def connection_uri(scheme: str, endpoint: ServerEndpoint, username: str, password: str, database: str) -> str:
    """Return the URI for an application: `postgresql://orders:s3cret@orders-primary.ns:5432/orders`.

    All characters except the unreserved ones of RFC 3986 are percent-encoded as UTF-8, so any name and any password
    survives the round trip.

    Args:
        scheme: the engine's `uri_scheme`.
    """
    return _uri(scheme, endpoint, username, quote(password, safe=""), database)


def jdbc_uri(scheme: str, endpoint: ServerEndpoint, username: str, password: str, database: str) -> str:
    """Return the URI for Java: `jdbc:postgresql://orders-primary.ns:5432/orders?user=orders&password=s3cret`."""
    credentials = f"user={quote(username, safe='')}&password={quote(password, safe='')}"
    return f"jdbc:{scheme}://{endpoint}/{quote(database, safe='')}?{credentials}"


def masked_uri(scheme: str, endpoint: ServerEndpoint, username: str, database: str) -> str:
    """Return the URI for status and logs, without the password.

    `<secret>` takes its place.
    """
    return _uri(scheme, endpoint, username, MASK, database)


def _uri(scheme: str, endpoint: ServerEndpoint, username: str, password: str, database: str) -> str:
    return f"{scheme}://{quote(username, safe='')}:{password}@{endpoint}/{quote(database, safe='')}"
