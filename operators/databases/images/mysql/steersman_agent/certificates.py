"""The files by which a server shows who it is and knows who others are, brought to it when they change."""

from __future__ import annotations

import hashlib
import re
import ssl
import time
from base64 import encodebytes
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_EVERY = 5.0  # seconds between two looks
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# X509_CERT_AUX of OpenSSL: rejected for clientAuth (1.3.6.1.5.5.7.3.2).
_NO_CLIENTS = bytes.fromhex("300ca00a06082b06010505070302")


@dataclass
class Certificates:
    """Mounted at `tls` (what the server shows) and `peer` (what this member shows others); see `trusted`."""

    tls: Path
    peer: Path
    trusted: Path
    _loaded: bytes = b""
    _at: float = 0.0

    def load(self) -> None:
        """The server is about to read them.

        MySQL takes new files at run time only if it can verify its own certificate with the authorities by which it
        verifies those of clients. So that of servers is among these, marked in such a way that nobody who shows
        something of it comes in: it may be anybody's, and may give any name to its customers.

        Raises OSError or ValueError for what cannot be read, and leaves what the server knows as it is.
        """
        self._at = time.monotonic()
        read = self._digest()
        servers = [*_certificates(self.tls / "ca.crt"), *_certificates(self.tls / "tls.crt")[1:]]
        clients = _certificates(self.peer / "ca.crt")
        self.trusted.write_text("\n".join([*clients, *_without_clients(servers)]) + "\n")
        # Last: what cannot be read is tried again.
        self._loaded = read

    def forget(self) -> None:
        """It did not read them."""
        self._loaded = b""

    def changed(self) -> bool:
        """Whether there are others now; looks from time to time."""
        if time.monotonic() < self._at + _EVERY:
            return False
        self._at = time.monotonic()
        return self._digest() != self._loaded

    def _digest(self) -> bytes:
        found = hashlib.sha256()
        for directory in (self.tls, self.peer):
            for name in ("ca.crt", "tls.crt", "tls.key"):
                found.update((directory / name).read_bytes())
        return found.digest()


def _certificates(file: Path) -> list[str]:
    return _CERTIFICATE.findall(file.read_text())


def _without_clients(certificates: Iterable[str]) -> list[str]:
    """The same for a verifier, but in the chain of a client's. OpenSSL, openssl-x509(1), "Trust Settings"."""
    encoded = [encodebytes(ssl.PEM_cert_to_DER_cert(one) + _NO_CLIENTS).decode() for one in certificates]
    return [f"-----BEGIN TRUSTED CERTIFICATE-----\n{one}-----END TRUSTED CERTIFICATE-----" for one in encoded]
