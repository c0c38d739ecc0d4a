"""TLS contexts: whom we trust, and the certificate that we show."""

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
    """The TLS settings of ``config``: its certificate authority, and the client certificate of ``identity``.

    Raises:
        ConfigurationError: a certificate or key is not PEM, or they do not belong together; names their files.
    """
    context = _create_context(config)
    # Python 3.13 sets it; the certificates of many clusters lack the extensions that it demands.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if identity.certificate and identity.key:
        _load_client_certificate(context, identity, config.server)
    return context


def load_ca(config: ClusterConfig) -> bytes | None:
    """The PEM of the certificate authorities to trust; None means the system's.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    return None if config.ca is None else load_pem(config.ca, f"TLS for {config.server}: certificate authority")


def load_key_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Has ``context`` show a certificate from now on; PEM. Open connections go on as they are.

    Raises:
        ssl.SSLError, ValueError: they are no PEM, or do not belong together; what was shown before still is.
    """
    with _temporary_file(b"\n".join((certificate, key))) as path:
        # On trial first: of a pair that is broken OpenSSL keeps the half that it could read, and then serves nobody.
        for candidate in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            # Without a password OpenSSL would ask the terminal for that of an encrypted key.
            candidate.load_cert_chain(path, password="")


@contextmanager
def _temporary_file(content: bytes) -> Generator[str]:
    """A file for a moment, readable by us alone: OpenSSL reads nothing else."""
    if hasattr(os, "memfd_create"):
        # In memory, since containers' file systems are read-only as a rule, and keys belong on no disk.
        with os.fdopen(os.memfd_create("pair.pem"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        # Imported here: most configurations have no client certificate, and it takes 3 ms.
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
        return ssl.create_default_context(cadata=ca_certificates.decode() if ca_certificates else None)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(f"TLS for {config.server}: {source} is no valid PEM: {error}") from None


def _load_client_certificate(context: ssl.SSLContext, identity: Identity, server: str) -> None:
    try:
        load_key_pair(context, identity.certificate or b"", identity.key or b"")
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"TLS for {server}: {identity.source} are no valid PEM, or do not belong together: {error}"
        ) from None
