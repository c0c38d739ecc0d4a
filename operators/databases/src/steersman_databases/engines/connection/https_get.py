"""GET requests to the programs in the pods of a cluster."""

from __future__ import annotations

import asyncio
import ssl

from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint


async def https_get(
    endpoint: ServerEndpoint, path: str, authorities: str, *, limit_bytes: int, timeout_seconds: float
) -> bytes:
    """Return the body of a response.

    Args:
        authorities: CAs of the cluster's servers, in PEM. The request goes to an address, so that the authority
            identifies the server. It signs for this cluster only.

    Raises:
        ServerUnreachable: it does not respond in time, or with an error or too much.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=authorities)
        async with asyncio.timeout(timeout_seconds):
            return await _get(endpoint, path, context, limit_bytes)
    except (OSError, TimeoutError, ValueError) as error:
        raise ServerUnreachable(endpoint, str(error) or "no response") from error


async def _get(endpoint: ServerEndpoint, path: str, context: ssl.SSLContext, limit_bytes: int) -> bytes:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    try:
        # With HTTP/1.0 the end of the connection is the end of the body.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {endpoint.host}\r\n\r\n".encode())
        await writer.drain()
        response = b""
        while chunk := await reader.read(65536):
            response += chunk
            if len(response) > limit_bytes:
                raise ValueError("the response is too large")
    finally:
        writer.close()
    head, _, body = response.partition(b"\r\n\r\n")
    status = head.split(maxsplit=2)[1:2]
    if status != [b"200"]:
        raise ValueError(f"the response has the status {b' '.join(status).decode(errors='replace')}")
    return body
