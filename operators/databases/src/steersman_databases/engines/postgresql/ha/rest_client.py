"""Requests to Patroni's REST API.

Changes require a client certificate of the cluster.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from steersman_databases.engines.errors import CertificateRefused, ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint

_CONNECT_TIMEOUT_SECONDS = 5.0  # seconds
_RESPONSE_TIMEOUT_SECONDS = 10.0


def client_ssl_context(client_data: Mapping[str, bytes], server_data: Mapping[str, bytes]) -> ssl.SSLContext:
    """Return a client's TLS context for the REST API.

    Both arguments are data of Secrets of type `kubernetes.io/tls`. Requests go to addresses, so only the authority
    identifies members. It signs for this cluster only.

    Args:
        client_data: the certificate and key that the client presents.
        server_data: contains the authority to trust.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=server_data["ca.crt"].decode())
    with _memory_file(client_data["tls.crt"]) as certificate, _memory_file(client_data["tls.key"]) as key:
        context.load_cert_chain(certificate, key)
    return context


async def post(endpoint: ServerEndpoint, path: str, body: Mapping[str, Any], context: ssl.SSLContext) -> None:
    """Send a request to Patroni, which completes it in any case.

    Patroni continues even if the client disconnects.

    Raises:
        CertificateRefused: one side does not trust the certificate of the other.
        ServerUnreachable: it does not respond, or refuses. The message then contains its response.
    """
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise _unreachable(endpoint, error) from error
    try:
        writer.write(_request(endpoint, path, body))
        await writer.drain()
        async with asyncio.timeout(_RESPONSE_TIMEOUT_SECONDS):
            response = await reader.read(65536)
    except TimeoutError:
        # The response to a restart arrives after the restart. The state of the members shows its effect anyway.
        return
    except OSError as error:
        raise _unreachable(endpoint, error) from error
    finally:
        writer.close()
    status, message = _parse_response(response)
    if status >= 400:
        raise ServerUnreachable(endpoint, f"Patroni responded with {status} {message}")


def _unreachable(endpoint: ServerEndpoint, error: OSError | TimeoutError) -> ServerUnreachable:
    # With TLS 1.3 a server rejects a client's certificate only after the handshake.
    kind = CertificateRefused if isinstance(error, ssl.SSLError) else ServerUnreachable
    return kind(endpoint, str(error) or "no response")


def _request(endpoint: ServerEndpoint, path: str, body: Mapping[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.0\r\nHost: {endpoint.host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _parse_response(response: bytes) -> tuple[int, str]:
    head, _, content = response.decode(errors="replace").partition("\r\n\r\n")
    message = head.split(maxsplit=2)
    status = int(message[1]) if len(message) > 1 and message[1].isdecimal() else 502
    return status, content.strip()[:500]


@contextmanager
def _memory_file(content: bytes) -> Generator[str]:
    """Yield a path to an in-memory file.

    OpenSSL reads certificates from paths only, and keys do not belong on a disk.
    """
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
