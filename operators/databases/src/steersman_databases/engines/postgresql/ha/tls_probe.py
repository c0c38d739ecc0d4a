"""Certificate that a server currently serves, from a TLS handshake.

A server may not have loaded the content of its Secret yet.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import struct

from steersman_databases.engines.server import ServerEndpoint

# Source: PostgreSQL's documentation, "Message Formats", SSLRequest.
_SSL_REQUEST = struct.pack("!II", 8, 80877103)


async def served_fingerprint(endpoint: ServerEndpoint, seconds: float = 3.0) -> str | None:
    """Return the SHA-256 of the served certificate in hexadecimal.

    None if the server does not respond within `seconds`, or not with TLS. The probe sends no data, so it verifies
    nothing. PgBouncer uses the same protocol.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(seconds):
            return await _probe(endpoint, context)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return None


async def _probe(endpoint: ServerEndpoint, context: ssl.SSLContext) -> str | None:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        writer.write(_SSL_REQUEST)
        if await reader.readexactly(1) != b"S":
            return None
        await writer.start_tls(context)
        served = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return None if served is None else hashlib.sha256(served).hexdigest()
    finally:
        writer.close()
