"""Connection to the endpoint of an object store.

It checks name, TLS and clock before any credentials are sent. obstore reports an unknown certificate authority
and a refused connection alike. A handshake shows the difference.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from steersman_databases.features.backup_store.access import StoreAccess, StoreProblem

TIMEOUT_SECONDS = 5.0


class Endpoint(NamedTuple):
    """Host and port of a bucket, and the field that determines them."""

    host: str
    port: int
    field: str

    @property
    def url(self) -> str:
        """URL without a path."""
        return f"https://{self.host}:{self.port}"


def endpoint_of(access: StoreAccess) -> Endpoint:
    """Return the endpoint of a bucket.

    With virtual-host addressing, its host contains the bucket.

    Raises:
        StoreProblem: the endpoint is not a URL.
    """
    if access.service == "gcs":
        return Endpoint("storage.googleapis.com", 443, "spec.gcs")
    if access.service == "azure":
        return Endpoint(f"{access.account}.blob.core.windows.net", 443, "spec.azure.account")
    field = "spec.s3.endpoint" if access.endpoint else "spec.s3.region"
    try:
        parts = urlsplit(access.endpoint or f"https://s3.{access.region}.amazonaws.com")
        host, port = parts.hostname, parts.port or 443
    except ValueError:
        host, port = None, 443
    if not host:
        raise StoreProblem("StoreUnreachable", f"{field} is not a URL. Write https://host or https://host:port")
    return Endpoint(f"{access.bucket}.{host}" if uses_virtual_host(access) else host, port, field)


def uses_virtual_host(access: StoreAccess) -> bool:
    """Return True if the bucket is part of the host."""
    return access.addressing == "VirtualHost" or (access.addressing == "Auto" and not access.endpoint)


def tls_context(access: StoreAccess) -> ssl.SSLContext:
    """Return the context that verifies the endpoint.

    Raises:
        StoreProblem: the certificate authority cannot be read.
    """
    try:
        context = ssl.create_default_context(cadata=access.ca or None)
    except ssl.SSLError as error:
        raise StoreProblem(
            "SecretInvalid", "spec.s3.caSecretRef: the certificate authority is not valid PEM. Correct the Secret"
        ) from error
    # Private authorities often leave out key identifiers, which RFC 5280 demands and no other client requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def check_endpoint(access: StoreAccess) -> int | None:
    """Connect to the endpoint and verify its certificate.

    Returns:
        Clock of the object store minus the own, in seconds. None if the response has no date.

    Raises:
        StoreProblem: the endpoint cannot be used.
    """
    endpoint = endpoint_of(access)
    with _problems_of(access, endpoint):
        connection = http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=TIMEOUT_SECONDS, context=tls_context(access)
        )
        try:
            connection.request("HEAD", "/", headers={"User-Agent": "steersman"})
            date = connection.getresponse().getheader("Date")
        finally:
            connection.close()
    return _skew(date)


def _skew(date: str | None) -> int | None:
    try:
        theirs = parsedate_to_datetime(date) if date else None
    except ValueError:
        return None
    if theirs is None or theirs.tzinfo is None:
        return None
    return round((theirs - datetime.now(UTC)).total_seconds())


@contextmanager
def _problems_of(access: StoreAccess, endpoint: Endpoint) -> Generator[None]:
    where = f"{endpoint.host}:{endpoint.port}"
    hint = ", or set spec.s3.addressing to Path" if uses_virtual_host(access) and access.service == "s3" else ""
    try:
        yield
    except socket.gaierror:
        raise StoreProblem(
            "StoreUnreachable", f"{endpoint.field}: host {endpoint.host} cannot be resolved. Correct it{hint}"
        ) from None
    except ssl.SSLCertVerificationError as error:
        raise StoreProblem(
            "CertificateNotTrusted",
            f"the certificate of {where} is not trusted ({error.verify_message}). {_advice(error, endpoint, hint)}",
        ) from None
    except TimeoutError:
        raise StoreProblem(
            "StoreUnresponsive",
            f"{endpoint.field}: {where} does not respond within {TIMEOUT_SECONDS:.0f} s. Check the object store and"
            " network policies",
        ) from None
    except ssl.SSLError:
        raise StoreProblem(
            "StoreUnreachable", f"{endpoint.field}: {where} does not offer TLS. Correct host and port"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        cause = "refuses connections" if isinstance(error, ConnectionRefusedError) else "is unreachable"
        raise StoreProblem(
            "StoreUnreachable",
            f"{endpoint.field}: {where} {cause}. Check the object store, host and port, and network policies",
        ) from None


def _advice(error: ssl.SSLCertVerificationError, endpoint: Endpoint, hint: str) -> str:
    # OpenSSL: X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
    if error.verify_code in (62, 64):
        return f"Use a name of the certificate in {endpoint.field}{hint}"
    if error.verify_code in (9, 10):
        return "Renew the certificate, or correct the clock"
    return "Put the certificate authority of the object store into the Secret of spec.s3.caSecretRef"
