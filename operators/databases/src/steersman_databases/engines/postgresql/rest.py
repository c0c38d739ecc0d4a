"""Requests to Patroni's REST API, which takes changes from clients with a certificate of the cluster's only."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from steersman_databases.engines.errors import CertificateRefused, ServerUnreachable
from steersman_databases.engines.server import Endpoint

_CONNECT = 5.0  # seconds
_ANSWER = 10.0


def trust(own: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> ssl.SSLContext:
    """A context of a client that shows the certificate ``own`` and trusts the authorities of ``theirs``.

    Both are data of Secrets of type ``kubernetes.io/tls``. Members are asked by address, so it is the authority that
    tells them, which signs for this cluster alone.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=theirs["ca.crt"].decode())
    with _file(own["tls.crt"]) as certificate, _file(own["tls.key"]) as key:
        context.load_cert_chain(certificate, key)
    return context


async def post(endpoint: Endpoint, path: str, body: Mapping[str, Any], context: ssl.SSLContext) -> None:
    """Asks Patroni to do something, which it goes on with when nobody waits any more.

    Raises:
        CertificateRefused: it is not trusted, or does not trust us.
        ServerUnreachable: it does not answer, or refuses; then with its words.
    """
    try:
        async with asyncio.timeout(_CONNECT):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise _unreachable(endpoint, error) from error
    try:
        writer.write(_request(endpoint, path, body))
        await writer.drain()
        async with asyncio.timeout(_ANSWER):
            answer = await reader.read(65536)
    except TimeoutError:
        # A restart is answered when it is over. That it happened is seen in the members' state anyway.
        return
    except OSError as error:
        raise _unreachable(endpoint, error) from error
    finally:
        writer.close()
    status, words = _read(answer)
    if status >= 400:
        raise ServerUnreachable(endpoint, f"Patroni says {status} {words}")


def _unreachable(endpoint: Endpoint, error: OSError | TimeoutError) -> ServerUnreachable:
    # With TLS 1.3 a server says only after the handshake that it does not take a client's certificate.
    kind = CertificateRefused if isinstance(error, ssl.SSLError) else ServerUnreachable
    return kind(endpoint, str(error) or "no answer")


def _request(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.0\r\nHost: {endpoint.host}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def _read(answer: bytes) -> tuple[int, str]:
    head, _, content = answer.decode(errors="replace").partition("\r\n\r\n")
    words = head.split(maxsplit=2)
    status = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 502
    return status, content.strip()[:500]


@contextmanager
def _file(content: bytes) -> Generator[str]:
    """A file that is nowhere: OpenSSL takes certificates by name only, and keys do not belong on a disk."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
