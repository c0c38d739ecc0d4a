"""Which certificate a server really shows, asked by a handshake: what a Secret says is not in its memory yet."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import struct

from ..server import Endpoint

# Source: PostgreSQL's documentation, "Message Formats", SSLRequest.
_SSL_REQUEST = struct.pack("!II", 8, 80877103)


async def shown_certificate(endpoint: Endpoint, seconds: float = 3.0) -> str | None:
    """SHA-256 of the certificate, in hexadecimal; None where nobody answers within ``seconds``, or without TLS.

    Whoever answers is told nothing, so nothing of it is verified. PgBouncer speaks the same protocol.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(seconds):
            return await _ask(endpoint, context)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


async def _ask(endpoint: Endpoint, context: ssl.SSLContext) -> str | None:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(_SSL_REQUEST)
        if await reader.readexactly(1) != b"S":
            return None
        await writer.start_tls(context)
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return None if shown is None else hashlib.sha256(shown).hexdigest()
    finally:
        writer.close()
