"""Server of a dump or restore.

Its description is in job.json and in mounted Secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..jobs import JobFields, JobRefused

SYSTEM_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_TLS_MODES = ("VerifyFull", "VerifyCA", "Require", "Disable")
_MAX_SECRET_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Address, TLS mode and database of a server.

    Args:
        files: directory with `ca.crt`, and with `tls.crt` and `tls.key` of the administrator.
        administrator: its name if no Secret has it.
    """

    host: str
    port: int
    database: str
    tls: str
    files: Path
    administrator: str = ""

    @property
    def authorities(self) -> Path:
        """File with the authorities that sign the server's certificate."""
        return own if (own := self.files / "ca.crt").is_file() else SYSTEM_AUTHORITIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """An account. The password is left out of ``repr``.

    Args:
        certificate: the account logs in with `tls.crt` and `tls.key` of the server's files.
    """

    username: str
    password: str
    certificate: bool = False

    def __repr__(self) -> str:
        return f"Login({self.username!r})"


def read_server(job: JobFields, files: Path, part: str = "server") -> ServerAddress:
    """Return the server of job.json. Raises JobRefused.

    Args:
        part: member of job.json.
    """
    fields = job.part(part)
    if fields is None:
        raise JobRefused("InvalidJob", f"job.json: {part} must be an object.")
    return ServerAddress(
        host=fields.text("host"),
        port=fields.number("port", 1, 65535),
        database=fields.text("database"),
        tls=fields.choice("tls", _TLS_MODES),
        files=files,
        administrator=fields.text("administrator", ""),
    )


def administrator_login(server: ServerAddress) -> Login | None:
    """Return the account of the administrator, or None without one. Raises JobRefused."""
    return read_login(server.files, files=server.files, username=server.administrator)


def read_login(directory: Path, *, files: Path | None = None, username: str = "") -> Login | None:
    """Return the account in a mounted Secret, or None without one. Raises JobRefused.

    Args:
        files: directory with the client certificate of the account. Defaults to none.
        username: of the account. Defaults to that of the Secret.
    """
    username, password = username or _secret(directory / "username"), _secret(directory / "password")
    certificate = files is not None and (files / "tls.crt").is_file() and (files / "tls.key").is_file()
    if not username or not (password or certificate):
        return None
    return Login(username=username, password=password, certificate=certificate)


def _secret(path: Path) -> str:
    try:
        text = path.read_bytes()[:_MAX_SECRET_BYTES].decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        raise JobRefused("InvalidSecret", f"{path.name} of the account cannot be read as UTF-8.") from None
    if any(character in text for character in "\0\r\n"):
        raise JobRefused("InvalidSecret", f"{path.name} of the account has a line break or NUL. Set another one.")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Roles that a database needs, and their grants on the database.

    Args:
        names: of all roles, without superusers.
        memberships: pairs of a group and its member.
        grants: on the database: grantee, privilege, and True with grant option.
    """

    owner: str
    names: Sequence[str]
    memberships: Sequence[tuple[str, str]] = ()
    grants: Sequence[tuple[str, str, bool]] = ()

    def document(self) -> dict[str, Any]:
        """Return the accounts for the header of a dump."""
        return {
            "owner": self.owner,
            "names": list(self.names),
            "memberships": [list(each) for each in self.memberships],
            "grants": [list(each) for each in self.grants],
        }


def parse_accounts(found: Any) -> Accounts:
    """Parse the accounts of a dump's header. Raises ValueError."""
    try:
        return Accounts(
            owner=str(found["owner"]),
            names=[str(each) for each in found["names"]],
            memberships=[(str(group), str(member)) for group, member in found["memberships"]],
            grants=[(str(grantee), str(privilege), bool(grant)) for grantee, privilege, grant in found["grants"]],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the accounts of the dump are malformed: {error}") from None
