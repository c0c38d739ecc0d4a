"""Client of the debug endpoint of an operator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from steersman.errors import ConfigurationError

DEBUG_PORT = 8082
"""Port where the commands look for the debug endpoint."""

DEFAULT_DEBUG_URL = f"http://127.0.0.1:{DEBUG_PORT}"

DebugUrlOption = Annotated[
    str, typer.Option("--url", help="URL of the operator's --debug-bind-address, or of a forwarded port.")
]

_REQUEST_TIMEOUT_SECONDS = 10.0
_MAX_BODY_BYTES = 64 * 2**20


def fetch_json(url: str, path: str, query: str) -> Any:
    """Return the JSON at ``path``.

    Raises:
        ConfigurationError: the URL is invalid or unreachable, or responds with an error.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, build_opener

    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(f"--url {url!r} must start with http:// or https://")
    try:
        # Ignore HTTP_PROXY: the URL is usually on this machine.
        with build_opener(ProxyHandler({})).open(
            f"{url.rstrip('/')}{path}{query}", timeout=_REQUEST_TIMEOUT_SECONDS
        ) as response:
            body = response.read(_MAX_BODY_BYTES + 1)
        if len(body) > _MAX_BODY_BYTES:
            raise ConfigurationError(f"{url}{path} responded with over {_MAX_BODY_BYTES} bytes: check --url")
        return json.loads(body)
    except HTTPError as error:
        raise ConfigurationError(
            f"{url} responded with {error.code}: start the operator with --debug-bind-address, and check --url"
        ) from None
    except (HTTPException, OSError, ValueError) as error:
        raise ConfigurationError(
            f"{url} is unreachable ({error}): run the operator with --debug-bind-address=127.0.0.1:8082; "
            "in a cluster, also run `kubectl -n NAMESPACE port-forward deployment/NAME 8082`"
        ) from None


def format_triggers(entry: Mapping[str, Any]) -> str:
    """Return the triggers of a reconcile, one per line."""
    reasons = [_format_trigger(t) for t in entry["triggers"]]
    omitted = entry["omitted_triggers"]
    return "\n".join([*reasons, *([f"and {omitted} more"] if omitted else [])])


def _format_trigger(trigger: dict[str, Any]) -> str:
    source = " ".join(str(trigger[p]) for p in ("kind", "object") if trigger.get(p))
    fields = f": {', '.join(trigger['fields'])}" if trigger.get("fields") else ""
    return f"{trigger['reason']} {source}{fields}".strip()
