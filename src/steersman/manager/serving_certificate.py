"""The certificate of an endpoint: from files that something else renews, or given as text."""

from __future__ import annotations

import ssl
from pathlib import Path
from tempfile import TemporaryDirectory

from steersman.errors import ConfigurationError
from steersman.observability import metrics
from steersman.observability.logging import get_logger

log = get_logger("manager")


def serving_context() -> ssl.SSLContext:
    """For a server; it has no certificate yet."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Shows ``certificate`` (PEM) to connections from now on; those that are open go on as they are."""
    # OpenSSL reads files alone.
    with TemporaryDirectory(prefix="steersman-") as directory:
        pair = Path(directory) / "tls.pem"
        pair.touch(mode=0o600)
        pair.write_text(f"{key}{certificate}")
        context.load_cert_chain(pair)


class ServingCertificate:
    """``tls.crt`` and ``tls.key`` of a directory, as a Secret of type ``kubernetes.io/tls`` is mounted.

    Attributes:
        context: for the server. ``refresh`` gives it what is in the files now; connections from then on get that.

    Raises:
        ConfigurationError: a file is missing or not PEM, or they do not belong together.
    """

    def __init__(self, directory: str) -> None:
        if not directory:
            raise ConfigurationError(
                "secure metrics need a certificate: give the directory of tls.crt and tls.key (--metrics-cert-path)"
            )
        self._certificate, self._key = Path(directory) / "tls.crt", Path(directory) / "tls.key"
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
            # Without a password OpenSSL would ask the terminal for that of an encrypted key.
            self.context.load_cert_chain(self._certificate, self._key, password="")
            metrics.certificate_reads.inc()
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(f"{self._certificate} and {self._key.name}: {error}") from error

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((s.st_mtime_ns, s.st_ino) for s in (self._certificate.stat(), self._key.stat()))
        except OSError as error:
            raise ConfigurationError(f"cannot read {error.filename}: {error.strerror}") from error
