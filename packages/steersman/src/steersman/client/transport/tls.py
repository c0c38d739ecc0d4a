"""TLS contexts with trusted certificate authorities and client certificates."""

from __future__ import annotations

import os
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from steersman.client.config import ClusterConfig
from steersman.client.credentials import Identity, load_pem
from steersman.errors import ConfigurationError


def create_ssl_context(config: ClusterConfig, identity: Identity) -> ssl.SSLContext:
    """Return a TLS context for the API server of ``config``.

    It trusts the certificate authority of ``config`` and has the client certificate of ``identity``.

    Raises:
        ConfigurationError: a certificate or key is not PEM, or key and certificate do not match. The message has
            their file names.
    """
    context = _create_context(config)
    # Python 3.13 sets this flag. The certificates of many clusters lack the extensions that it requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # Python 3.13 and Go accept an intermediate authority without its root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if config.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity.certificate and identity.key:
        _load_client_certificate(context, identity, config.server)
    return context


def load_ca(config: ClusterConfig) -> bytes | None:
    """Return the trusted certificate authorities as PEM.

    None means those of the system.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return None if config.ca is None else load_pem(config.ca, f"TLS for {config.server}: certificate authority")


def load_key_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Set the certificate and key of ``context``. Open connections keep the previous ones.

    Args:
        context: TLS context to change.
        certificate: certificate chain as PEM.
        key: unencrypted private key as PEM.

    Raises:
        ssl.SSLError, ValueError: certificate or key is not PEM, or they do not match. The context is unchanged.
    """
    with _temporary_file(b"\n".join((certificate, key))) as path:
        # The first context is a trial: OpenSSL would keep the readable half of a broken pair and fail all handshakes.
        for candidate in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            # Without a password, OpenSSL would prompt for one on the terminal if the key is encrypted.
            candidate.load_cert_chain(path, password="")


@contextmanager
def _temporary_file(content: bytes) -> Generator[str]:
    """Yield the path of a temporary file for the ssl module.

    The module loads certificates and keys only from files. No other user can read the file.
    """
    if hasattr(os, "memfd_create"):
        # The file is in memory, since file systems of containers are often read-only and keys must not be on disk.
        with os.fdopen(os.memfd_create("pair.pem"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        # The import takes 3 ms, and most configurations have no client certificate.
        import tempfile

        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(content)
            file.flush()
            yield file.name


def _create_context(config: ClusterConfig) -> ssl.SSLContext:
    ca_certificates = load_ca(config)
    inline = f"{config.source}: certificate-authority-data" if config.source else "the certificate authority"
    source = config.ca if isinstance(config.ca, Path) else inline
    try:
        # Comments may have any encoding. Without any text, Python would trust the authorities of the system.
        bundle = ca_certificates.decode("ascii", errors="ignore") + "\n" if ca_certificates else None
        return ssl.create_default_context(cadata=bundle)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"TLS for {config.server}: {source} is not valid PEM: {error}") from None


def _load_client_certificate(context: ssl.SSLContext, identity: Identity, server: str) -> None:
    try:
        load_key_pair(context, identity.certificate or b"", identity.key or b"")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"TLS for {server}: {identity.source} are not valid PEM or do not match: {error}"
        ) from None
