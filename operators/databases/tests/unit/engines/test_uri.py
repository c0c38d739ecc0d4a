from __future__ import annotations

from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steersman_databases.engines import ServerEndpoint, connection_uri, masked_uri

ENDPOINT = ServerEndpoint("orders-primary.shop", 5432)
# No lone surrogates: they cannot be encoded, and no engine takes them.
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1)


def test_plain_names_stay_readable() -> None:
    uri = connection_uri("postgresql", ENDPOINT, "orders", "s3cret", "orders")
    assert uri == "postgresql://orders:s3cret@orders-primary.shop:5432/orders"


def test_reserved_characters_are_encoded() -> None:
    uri = connection_uri("mysql", ENDPOINT, "a:b@c", "p/w?#[]%", "d/b é")
    assert uri == "mysql://a%3Ab%40c:p%2Fw%3F%23%5B%5D%25@orders-primary.shop:5432/d%2Fb%20%C3%A9"


def test_masked_uri_shows_no_password() -> None:
    assert (
        masked_uri("postgresql", ENDPOINT, "orders", "orders")
        == "postgresql://orders:<secret>@orders-primary.shop:5432/orders"
    )


def test_ipv6_is_bracketed() -> None:
    assert connection_uri("mysql", ServerEndpoint("fd00::1", 3306), "u", "p", "d") == "mysql://u:p@[fd00::1]:3306/d"


@given(username=TEXT, password=TEXT, database=TEXT)
def test_arbitrary_text_round_trips(username: str, password: str, database: str) -> None:
    parts = urlsplit(connection_uri("postgresql", ENDPOINT, username, password, database))
    assert (parts.hostname, parts.port) == (ENDPOINT.host, ENDPOINT.port)
    assert unquote(parts.username or "") == username
    assert unquote(parts.password or "") == password
    assert unquote(parts.path.removeprefix("/")) == database


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_scheme_comes_first(scheme: str) -> None:
    assert connection_uri(scheme, ENDPOINT, "u", "p", "d").startswith(f"{scheme}://")
