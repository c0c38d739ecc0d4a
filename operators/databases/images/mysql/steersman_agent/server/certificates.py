"""Certificates of a server, and their reload after a change."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from base64 import encodebytes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CHECK_INTERVAL_SECONDS = 5.0  # seconds between two checks
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# X509_CERT_AUX of OpenSSL: rejected for clientAuth (1.3.6.1.5.5.7.3.2).
_REJECT_CLIENT_AUTH = bytes.fromhex("300ca00a06082b06010505070302")


@dataclass
class CertificateReload:
    """Certificates of the server (`tls`) and of the client (`peer`).

    `trusted` is the file of authorities for clients.
    """

    tls: Path
    peer: Path
    trusted: Path
    _loaded: bytes = b""
    _checked_at: float = 0.0

    def load(self) -> None:
        """Write the trusted authorities before the server reads its files.

        MySQL reloads certificates only if the authorities for clients also verify its own certificate. So the
        servers'
        authority is among them, marked so that it verifies no client: it may be public and sign any name.

        Raises:
            OSError: a file is unreadable. The trusted authorities stay unchanged.
            ValueError: a file is invalid. The trusted authorities stay unchanged.
        """
        self._checked_at = time.monotonic()
        read = self._digest()
        servers = [*_certificates(self.tls / "ca.crt"), *_certificates(self.tls / "tls.crt")[1:]]
        clients = _certificates(self.peer / "ca.crt")
        self.trusted.write_text("\n".join([*clients, *_server_auth_only(servers)]) + "\n")
        # Last, so that unreadable files are tried again.
        self._loaded = read

    def mark_unloaded(self) -> None:
        """Record that the server did not load them."""
        self._loaded = b""

    def have_changed(self) -> bool:
        """Return True if the files have changed, checked periodically."""
        if time.monotonic() < self._checked_at + _CHECK_INTERVAL_SECONDS:
            return False
        self._checked_at = time.monotonic()
        return self._digest() != self._loaded

    def _digest(self) -> bytes:
        found = hashlib.sha256()
        for directory in (self.tls, self.peer):
            for name in ("ca.crt", "tls.crt", "tls.key"):
                found.update((directory / name).read_bytes())
        return found.digest()


def _certificates(file: Path) -> list[str]:
    return _CERTIFICATE.findall(file.read_text())


def _server_auth_only(certificates: Iterable[str]) -> list[str]:
    """Mark certificates as not trusted for clients.

    OpenSSL, openssl-x509(1), "Trust Settings".
    """
    encoded = [encodebytes(ssl.PEM_cert_to_DER_cert(one) + _REJECT_CLIENT_AUTH).decode() for one in certificates]
    return [f"-----BEGIN TRUSTED CERTIFICATE-----\n{one}-----END TRUSTED CERTIFICATE-----" for one in encoded]
