"""The directory of an object store: certificates, accounts, objects and logs.

It outlives the processes. A store that is started again in its directory has the same CA, credentials and objects.
"""

import json
import secrets
import string
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from devcluster.certificate_authority import CertificateAuthority, KeyPair

_KEY_ALPHABET = string.ascii_uppercase + string.digits


@dataclass(frozen=True)
class Credentials:
    """An access key of the store."""

    access_key_id: str
    secret_access_key: str = field(repr=False)

    @classmethod
    def generate(cls) -> "Credentials":
        """Return a random key in the form of AWS."""
        return cls("".join(secrets.choice(_KEY_ALPHABET) for _ in range(20)), secrets.token_urlsafe(30))


@dataclass(frozen=True)
class StoreDirectory:
    """Paths below the directory of a store."""

    path: Path

    @property
    def ca_certificate(self) -> Path:
        return self.path / "pki" / "ca.crt"

    @property
    def server_pair(self) -> KeyPair:
        return KeyPair.named("server", self.path / "pki")

    @property
    def volume(self) -> Path:
        """File system with the objects.

        It is a mount point if its size is limited.
        """
        return self.path / "volume"

    @property
    def accounts(self) -> Path:
        """versitygw reads `users.json` in this directory for each request."""
        return self.path / "accounts"

    @property
    def root_account(self) -> Path:
        """Environment file with the account that creates the bucket."""
        return self.path / "root.env"

    @property
    def credentials_file(self) -> Path:
        """JSON file with the credentials of clients."""
        return self.path / "credentials.json"

    @property
    def manifest(self) -> Path:
        """Manifest for the database operator."""
        return self.path / "manifest.yaml"

    @property
    def state(self) -> Path:
        """Addresses and processes of the running store."""
        return self.path / "store.json"

    def log(self, program: str) -> Path:
        """Return the log file of `versitygw` or `toxiproxy`."""
        return self.path / "logs" / f"{program}.log"

    def create(self, server_names: Sequence[str]) -> None:
        """Create certificates and credentials, unless they exist.

        `server_names` are the DNS names and IP addresses of the server's certificate.
        """
        for directory in (self.ca_certificate.parent, self.accounts, self.volume, self.log("").parent):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.ca_certificate.exists():
            authority = CertificateAuthority.create(
                "steersman-store", KeyPair.named("ca", self.ca_certificate.parent)
            )
            authority.issue(self.server_pair, "store", server=server_names)
        if not self.root_account.exists():
            root = Credentials.generate()
            content = f"ROOT_ACCESS_KEY_ID={root.access_key_id}\nROOT_SECRET_ACCESS_KEY={root.secret_access_key}\n"
            _write_private(self.root_account, content)
        if not (self.accounts / "users.json").exists():
            self.save_credentials(Credentials.generate())

    def root_credentials(self) -> Credentials:
        """Return the credentials of the account that creates the bucket."""
        lines = (line.partition("=") for line in self.root_account.read_text().splitlines())
        values = {name: value for name, _, value in lines}
        return Credentials(values["ROOT_ACCESS_KEY_ID"], values["ROOT_SECRET_ACCESS_KEY"])

    def credentials(self) -> Credentials:
        """Return the credentials of clients."""
        content: dict[str, str] = json.loads(self.credentials_file.read_text())
        return Credentials(**content)

    def save_credentials(self, *accepted: Credentials) -> None:
        """Accept these credentials from now on, and no others. The first are those of new clients."""
        _write_private(self.credentials_file, json.dumps(asdict(accepted[0])))
        accounts: dict[str, dict[str, Any]] = {
            each.access_key_id: {
                "access": each.access_key_id,
                "secret": each.secret_access_key,
                "role": "admin",
                "userID": 0,
                "groupID": 0,
                "projectID": 0,
            }
            for each in accepted
        }
        _write_private(self.accounts / "users.json", json.dumps({"accessAccounts": accounts}))


def _write_private(path: Path, content: str) -> None:
    """Write a file atomically, readable by its owner only."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.touch(mode=0o600)
    unfinished.write_text(content)
    unfinished.rename(path)
