"""The certificate of an endpoint: from files that something else renews, or given as text."""

from __future__ import annotations

import ssl
from pathlib import Path

from steersman.client.tls import load_pair
from steersman.errors import ConfigurationError
from steersman.observability import metrics
from steersman.observability.logging import get_logger

log = get_logger("manager")


def serving_context() -> ssl.SSLContext:
    """For a server; it has no certificate yet."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class ServingCertificate:
    """A certificate and its key in a directory, as a Secret of type ``kubernetes.io/tls`` is mounted.

    Args:
        directory: of both files.
        certificate: the file's name.
        key: the file's name.

    Attributes:
        context: for the server. ``refresh`` gives it what is in the files now; connections from then on get that.

    Raises:
        ConfigurationError: a file is missing or not PEM, or they do not belong together.
    """

    def __init__(self, directory: str, certificate: str = "tls.crt", key: str = "tls.key") -> None:
        if not directory:
            raise ConfigurationError(
                "secure metrics need a certificate: give the directory of tls.crt and tls.key (--metrics-cert-path)"
            )
        self._certificate, self._key = Path(directory) / certificate, Path(directory) / key
        self.context = serving_context()
        self._seen = self._stamp()
        self._load()

    def refresh(self) -> None:
        """Reads the files again if they have changed. A broken pair is reported, and the former one stays."""
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._load()
                self._seen = stamp
                log.info("certificate read again", file=str(self._certificate))
        except ConfigurationError as error:
            metrics.certificate_errors.inc()
            log.warning("certificate not read again", error=str(error))

    def _load(self) -> None:
        try:
            load_pair(self.context, self._certificate.read_bytes(), self._key.read_bytes())
            metrics.certificate_reads.inc()
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"{self._certificate} and {self._key.name}: {error}") from error

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((s.st_mtime_ns, s.st_ino) for s in (self._certificate.stat(), self._key.stat()))
        except OSError as error:
            raise ConfigurationError(f"cannot read {error.filename}: {error.strerror}") from error
