"""What a client of the newest Pythons, which trust no sloppy certificate, says of a server's."""

from __future__ import annotations

import ssl
from pathlib import Path


def strict_handshake(ca_certificate: str, certificate: str, key: str, name: str, directory: Path) -> None:
    """Has a client that trusts ``authority`` talk to a server at ``name``. Raises ssl.SSLError: it does not."""
    pair = directory / "pair.pem"
    pair.write_text(certificate + key)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(pair)
    strict_handshake_with(serving, ca_certificate, name)


def strict_handshake_with(serving: ssl.SSLContext, ca_certificate: str, name: str) -> None:
    """As ``shake_hands``, with a server that is there."""
    trusting = ssl.create_default_context(cadata=ca_certificate)
    # What Python 3.13 does by default.
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, there, server_hostname=name)
    server = serving.wrap_bio(there, back, server_side=True)
    for _ in range(3):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() is not None
