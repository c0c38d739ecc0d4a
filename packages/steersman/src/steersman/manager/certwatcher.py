"""The certificate of an endpoint: from files that something else renews, or given as text."""

from __future__ import annotations

import ssl
from pathlib import Path

from steersman.client.transport.tls import load_key_pair
from steersman.errors import ConfigurationError
from steersman.observability import metrics
from steersman.observability.logging import get_logger

log = get_logger("manager")


def server_ssl_context() -> ssl.SSLContext:
    """For a server; it has no certificate yet."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class CertWatcher:
    """A certificate and its key in a directory, as a Secret of type ``kubernetes.io/tls`` is mounted.

    Args:
        directory: of both files.
        cert_name: the file's name.
        key_name: the file's name.

    Attributes:
        context: for the server. ``refresh`` gives it what is in the files now; connections from then on get that.

    Raises:
        ConfigurationError: a file is missing or not PEM, or they do not belong together.
    """

    def __init__(self, directory: str, cert_name: str = "tls.crt", key_name: str = "tls.key") -> None:
        if not directory:
            raise ConfigurationError(
                "secure metrics need a certificate: give the directory of tls.crt and tls.key (--metrics-cert-path)"
            )
        self._cert_path, self._key_path = Path(directory) / cert_name, Path(directory) / key_name
        self.ssl_context = server_ssl_context()
        self._loaded_fingerprint = self._fingerprint()
        self._load()

    def reload_if_changed(self) -> None:
        """Reads the files again if they have changed. A broken pair is reported, and the former one stays."""
        try:
            fingerprint = self._fingerprint()
            if fingerprint != self._loaded_fingerprint:
                self._load()
                self._loaded_fingerprint = fingerprint
                log.info("certificate read again", file=str(self._cert_path))
        except ConfigurationError as error:
            metrics.certificate_errors.inc()
            log.warning("certificate not read again", error=str(error))

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
