"""Reloads serving certificates from files, as controller-runtime's ``pkg/certwatcher``."""

from __future__ import annotations

import ssl
from pathlib import Path

from steersman.client.transport.tls import load_key_pair
from steersman.errors import ConfigurationError
from steersman.observability import metrics
from steersman.observability.logging import get_logger

log = get_logger("manager")


def server_ssl_context() -> ssl.SSLContext:
    """An SSL context for a server, without a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class CertWatcher:
    """A serving certificate in a directory.

    The directory is usually a mounted Secret of type ``kubernetes.io/tls``.

    Args:
        directory: directory of both files.
        cert_name: name of the certificate file.
        key_name: name of the private key file.

    Attributes:
        ssl_context: SSL context for the server. After ``reload_if_changed``, new connections use the new certificate.

    Raises:
        ConfigurationError: a file is missing or not PEM, or the key does not belong to the certificate.
    """

    def __init__(self, directory: str, cert_name: str = "tls.crt", key_name: str = "tls.key") -> None:
        if not directory:
            raise ConfigurationError(
                "secure metrics need a certificate: set --metrics-cert-path to the directory of tls.crt and tls.key"
            )
        self._cert_path, self._key_path = Path(directory) / cert_name, Path(directory) / key_name
        self.ssl_context = server_ssl_context()
        self._loaded_fingerprint = self._fingerprint()
        self._load()

    def reload_if_changed(self) -> None:
        """Reload the files if they have changed.

        An invalid certificate is logged, and the previous one stays in use.
        """
        try:
            fingerprint = self._fingerprint()
            if fingerprint != self._loaded_fingerprint:
                self._load()
                self._loaded_fingerprint = fingerprint
                log.info("reloaded certificate", file=str(self._cert_path))
        except ConfigurationError as error:
            metrics.certificate_errors.inc()
            log.warning("failed to reload certificate", error=str(error))

    def _load(self) -> None:
        try:
            load_key_pair(self.ssl_context, self._cert_path.read_bytes(), self._key_path.read_bytes())
            metrics.certificate_reads.inc()
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"{self._cert_path} and {self._key_path.name}: {error}") from error

    def _fingerprint(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((s.st_mtime_ns, s.st_ino) for s in (self._cert_path.stat(), self._key_path.stat()))
        except OSError as error:
            raise ConfigurationError(f"cannot read {error.filename}: {error.strerror}") from error
