"""HTTPS requests to other processes of the pod."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

RESPONSE_LIMIT_BYTES = 1 << 20
_TIMEOUT_SECONDS = 3.0


class RequestFailed(Exception):
    """The process did not respond."""


def get(port: int, path: str, authorities: Path, host: str = "127.0.0.1") -> tuple[int, bytes]:
    """Return the status and the body of a response.

    Args:
        authorities: file with the certificate authorities of the instance.

    Raises:
        RequestFailed: there is no response.
    """
    try:
        # Inside of the pod, the address stands for the identity; the authority still has to match.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(authorities)
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_SECONDS, context=context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read(RESPONSE_LIMIT_BYTES)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise RequestFailed(str(error)) from error
