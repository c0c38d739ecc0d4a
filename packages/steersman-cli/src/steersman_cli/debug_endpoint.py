"""Client of the debug endpoint of an operator."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from steersman.errors import ConfigurationError

if TYPE_CHECKING:
    from ssl import SSLContext, SSLSocket

DEBUG_PORT = 8082
"""Port where the commands look for the debug endpoint."""

DEFAULT_DEBUG_URL = f"http://127.0.0.1:{DEBUG_PORT}"

DebugUrlOption = Annotated[
    str, typer.Option("--url", help="URL of the operator's --debug-bind-address, or of a forwarded port.")
]

TokenFileOption = Annotated[
    Path | None, typer.Option(help="File with a bearer token, for an operator with --metrics-secure.")
]
CertificateAuthorityOption = Annotated[
    Path | None, typer.Option(help="File with the CA of the certificate. Defaults to the CAs of the system.")
]
TlsServerNameOption = Annotated[
    str, typer.Option(help="Name in the certificate, for a forwarded port. Defaults to the host of --url.")
]

_REQUEST_TIMEOUT_SECONDS = 10.0
_MAX_BODY_BYTES = 64 * 2**20
_WRITERS = {"own": "own write", "other": "other client", "both": "own write and other client"}


class DebugEndpoint(NamedTuple):
    """Location of the debug endpoint, and its authentication.

    Attributes:
        url: URL with http or https.
        token_file: file with a bearer token.
        certificate_authority: file with the trusted CA. Defaults to the CAs of the system.
        tls_server_name: name in the certificate. Defaults to the host of ``url``.
    """

    url: str
    token_file: Path | None = None
    certificate_authority: Path | None = None
    tls_server_name: str = ""

    def token(self) -> str:
        """Return the bearer token, or an empty string. Raises ConfigurationError."""
        if self.token_file is None:
            return ""
        if not self.url.startswith("https://"):
            raise ConfigurationError("--token-file needs a --url with https://, so that the token is encrypted")
        try:
            return self.token_file.read_text().strip()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"--token-file {self.token_file} cannot be read: {error}") from None

    def ssl_context(self) -> SSLContext:
        """Return the verification of the certificate. Raises ConfigurationError."""
        from ssl import create_default_context

        try:
            context = create_default_context(cafile=self.certificate_authority)
        except OSError as error:
            path = self.certificate_authority
            raise ConfigurationError(f"--certificate-authority {path} cannot be read: {error}") from None
        if self.tls_server_name:
            wrap: Any = partial(_wrap_socket, context.wrap_socket, self.tls_server_name)
            context.wrap_socket = wrap
        return context


def _wrap_socket(wrap: Callable[..., SSLSocket], name: str, socket: Any, **options: Any) -> SSLSocket:
    return wrap(socket, **{**options, "server_hostname": name})


def fetch_json(endpoint: DebugEndpoint, path: str, query: str) -> Any:
    """Return the JSON at ``path``.

    Raises:
        ConfigurationError: an option is invalid, or the endpoint is unreachable or responds with an error.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

    url = endpoint.url
    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"--url {url!r} must start with http:// or https://")
    request = Request(f"{url.rstrip('/')}{path}{query}")  # noqa: S310
    if token := endpoint.token():
        # A redirect must not receive the token.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    # Ignore HTTP_PROXY: the URL is usually on this machine.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=endpoint.ssl_context()))
    try:
        with opener.open(request, timeout=_REQUEST_TIMEOUT_SECONDS) as response:
            body = response.read(_MAX_BODY_BYTES + 1)
        if len(body) > _MAX_BODY_BYTES:
            raise ConfigurationError(f"{url}{path} responded with over {_MAX_BODY_BYTES} bytes: check --url")
    except HTTPError as error:
        if error.code in (401, 403):
            raise ConfigurationError(
                f"{url} responded with {error.code}: set --token-file to a token of an account that may get {path}"
            ) from None
        raise ConfigurationError(
            f"{url} responded with {error.code}: start the operator with --debug-bind-address, and check --url"
        ) from None
    except (HTTPException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{url} is unreachable ({error}): check that the operator runs, and give --url if `steersman dev` or "
            "`steersman run` printed another port. Other operators need --debug-bind-address=127.0.0.1:8082; "
            "in a cluster, also run `kubectl -n NAMESPACE port-forward deployment/NAME 8082`"
        ) from None
    try:
        return json.loads(body)
    except ValueError:
        raise ConfigurationError(
            f"{url}{path} did not respond with JSON, so another program listens there: give --url"
        ) from None


def format_triggers(entry: Mapping[str, Any]) -> str:
    """Return the triggers of a reconcile, one per line."""
    reasons = [_format_trigger(t) for t in entry["triggers"]]
    omitted = entry["omitted_triggers"]
    return "\n".join([*reasons, *([f"and {omitted} more"] if omitted else [])])


def _format_trigger(trigger: dict[str, Any]) -> str:
    source = " ".join(str(trigger[p]) for p in ("kind", "object") if trigger.get(p))
    # The origin of other triggers repeats the reason, or is the class of an error.
    details = [trigger["origin"]] if trigger.get("kind") and trigger.get("origin") else []
    details += [_WRITERS[trigger["writer"]]] if trigger.get("writer") in _WRITERS else []
    origin = f" ({', '.join(details)})" if details else ""
    fields = f": {', '.join(trigger['fields'])}" if trigger.get("fields") else ""
    return f"{trigger['reason']} {source}{origin}{fields}".strip()
