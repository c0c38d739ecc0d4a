"""Selection of the proxy for a server, with the rules of kubectl."""

from __future__ import annotations

import pytest

from steersman.client.transport.address import parse_address
from steersman.client.transport.proxy import Proxy, proxy_for
from steersman.errors import ConfigurationError

SERVER = parse_address("https://api.example.com:6443")


def test_proxy_of_kubeconfig_overrides_environment() -> None:
    environment = {"HTTPS_PROXY": "http://there:1", "NO_PROXY": "*"}
    assert proxy_for(SERVER, "http://here:2", environment) == Proxy(parse_address("http://here:2"))
    assert proxy_for(SERVER, "", {"HTTPS_PROXY": "http://there:1"}) is None


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        ("https://api:6443", {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://q:2"}, "http://p:1"),
        ("http://api:8001", {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://q:2"}, "http://q:2"),
        ("https://api:6443", {"https_proxy": "https://p:1"}, "https://p:1"),
        ("https://api:6443", {"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ("https://api:6443", {"HTTP_PROXY": "http://q:2"}, None),
        ("https://api:6443", {}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p:1"}, None),
    ],
)
def test_proxy_from_environment(server: str, environment: dict[str, str], proxy: str | None) -> None:
    found = proxy_for(parse_address(server), None, environment)
    assert (found and found.address) == (parse_address(proxy) if proxy else None)


@pytest.mark.parametrize(
    ("server", "exemptions", "direct"),
    [
        ("https://api.example.com:6443", "*", True),
        ("https://api.example.com:6443", "other.com, example.com", True),
        ("https://api.example.com:6443", ".example.com", True),
        ("https://api.example.com:6443", "*.example.com", True),
        ("https://api.example.com:6443", "API.Example.com", True),
        ("https://API.example.com:6443", "api.example.com", True),
        ("https://example.com:6443", ".example.com", False),
        ("https://badexample.com:6443", "example.com", False),
        ("https://api.example.com:6443", "api.example.com:6443", True),
        ("https://api.example.com:6443", "api.example.com:443", False),
        ("https://api.example.com:6443", "", False),
        ("https://10.0.0.1:6443", "10.0.0.0/8", True),
        ("https://10.0.0.1:6443", "10.0.0.1", True),
        ("https://10.0.0.1:6443", "10.0.0.1:6443", True),
        ("https://10.0.0.1:6443", "10.0.0.1:443", False),
        ("https://10.0.0.1:6443", "192.168.0.0/16,0.0.0.1", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "fd00::1", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "10.0.0.0/8", False),
        ("https://api.example.com:6443", "10.0.0.0/8", False),
    ],
)
def test_exemptions(server: str, exemptions: str, direct: bool) -> None:
    found = proxy_for(parse_address(server), None, {"HTTPS_PROXY": "http://p:1", "no_proxy": exemptions})
    assert (found is None) is direct


def test_proxy_password_is_sent_and_hidden() -> None:
    found = proxy_for(SERVER, "http://jane:s3cret@proxy:3128", {})
    assert found is not None
    assert (found.address, found.authorization) == (parse_address("http://proxy:3128"), "Basic amFuZTpzM2NyZXQ=")
    assert "s3cret" not in repr(found)
    assert "amFuZ" not in repr(found)


@pytest.mark.parametrize(
    "url",
    ["ftp://me:s3cret@proxy", "http://", "me:s3cret@proxy:1:2://", "http://me:s3cret@[::1", "socks5://me:s3cret@p"],
)
@pytest.mark.parametrize("variable", [False, True])
def test_invalid_proxy_url_error_hides_password(url: str, variable: bool) -> None:
    environment = {"HTTPS_PROXY": url} if variable else {}
    with pytest.raises(ConfigurationError, match="HTTPS_PROXY" if variable else "proxy-url") as caught:
        proxy_for(SERVER, None if variable else url, environment)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://", "10.0.0.1:6443", "https://a..b", f"https://{'a' * 64}.example.com"])
def test_proxy_address_without_host_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match="host"):
        parse_address(url)


@pytest.mark.parametrize("host", ["api.example.com.", "[fe80::1]", "10.0.0.1", "bücher.example"])
def test_addresses(host: str) -> None:
    assert parse_address(f"https://{host}").port == 443
