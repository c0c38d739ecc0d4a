"""Who we are to the API server: tokens, certificates, and the files and plugins that they come from.

All of them answer one question, ``Credentials.load``. It may block (files, plugins), so the transport asks it in a
thread, and only when what it has is due: a request costs no system call.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from steersman.errors import ConfigurationError, CredentialsFailed
from steersman.observability.logging import get_logger

log = get_logger("client")

# The kubelet rotates projected tokens at 80 % of an hour; client-go rereads them every minute. Whoever rotates faster
# is answered 401, and then files are read at once.
FILE_INTERVAL = 60.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What is shown to the server.

    Attributes:
        authorization: value of the ``Authorization`` header.
        certificate: PEM of the client certificate and those between it and the authority.
        key: PEM of its private key, not encrypted.
        valid_for: seconds after which ``Credentials.load`` must be asked again.
        origin: where certificate and key come from, for errors.
    """

    authorization: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    valid_for: float = field(default=math.inf, compare=False)
    origin: str = field(default="client certificate and key", compare=False)


class Credentials(Protocol):
    """A source of identities. Several transports, on event loops of several threads, may share one."""

    def load(self, rejected: Identity | None = None) -> Identity:
        """The identity to show now. May block.

        Args:
            rejected: the server answered 401 to this identity: give another, where there is one.

        Raises:
            CredentialsFailed: there is none; says which file or plugin.
        """
        ...


@dataclass(frozen=True, slots=True)
class Anonymous(Credentials):
    """Nobody: the API server calls such requests ``system:anonymous``."""

    def load(self, rejected: Identity | None = None) -> Identity:
        return Identity()


@dataclass(frozen=True, slots=True)
class StaticToken(Credentials):
    """A bearer token that never changes."""

    token: str = field(repr=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        """The token, whatever was rejected; there is no other."""
        return Identity(bearer(self.token, "token"))


@dataclass(frozen=True, slots=True)
class BasicAuth(Credentials):
    """User name and password, as some proxies before API servers ask for; API servers know them no more."""

    username: str
    password: str = field(repr=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        pair = f"{self.username}:{self.password}".encode()
        return Identity(f"Basic {base64.b64encode(pair).decode()}")


class TokenFile(Credentials):
    """A bearer token in a file that somebody rotates, as the kubelet does with a pod's. Read again every minute.

    Args:
        path: the file.
        first: the token to use while the file cannot be read.
    """

    def __init__(self, path: Path, first: str | None = None) -> None:
        self.path = path
        self._last = first

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenFile) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def load(self, rejected: Identity | None = None) -> Identity:
        """The token in the file.

        Raises:
            CredentialsFailed: the file was never readable; says why.
        """
        try:
            read = self.path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            if self._last is None:
                raise CredentialsFailed(f"cannot read the token file {self.path}: {reason}") from None
            log.warning("token file unreadable, using the last token", file=str(self.path), error=reason)
        else:
            if not read and self._last is None:
                raise CredentialsFailed(f"the token file {self.path} is empty")
            # Some writers truncate first: an empty file is one that is being written.
            self._last = read or self._last
        return Identity(bearer(self._last or "", f"token file {self.path}"), valid_for=FILE_INTERVAL)


@dataclass(frozen=True, slots=True)
class ClientCertificate(Credentials):
    """A client certificate and its key: PEM, or files that are read again every minute.

    Connections that are open keep the pair they began with; new ones show the new pair.
    Errors call them ``where``.
    """

    certificate: bytes | Path = field(repr=False)
    key: bytes | Path = field(repr=False)
    where: str = field(default="client certificate and key", compare=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        """Certificate and key, from their files if they are in some. Raises ConfigurationError."""
        files = isinstance(self.certificate, Path) or isinstance(self.key, Path)
        return Identity(
            certificate=pem(self.certificate, "client certificate"),
            key=pem(self.key, "client key"),
            valid_for=FILE_INTERVAL if files else math.inf,
            origin=self.where,
        )


@dataclass(frozen=True, slots=True)
class Combined(Credentials):
    """Several at once, such as a certificate and a token; of each kind the first counts."""

    parts: tuple[Credentials, ...]

    def load(self, rejected: Identity | None = None) -> Identity:
        loaded = [part.load(rejected) for part in self.parts]
        authorization = next((i.authorization for i in loaded if i.authorization), None)
        shown = next((i for i in loaded if i.certificate), Identity())
        return replace(shown, authorization=authorization, valid_for=min(i.valid_for for i in loaded))


def bearer(token: str, what: str) -> str:
    """The header for ``token``.

    Raises:
        CredentialsFailed: ``token`` has characters that no header may have; says it was ``what``, not what it is.
    """
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsFailed(f"{what}: a token has only printable ASCII characters and no spaces")
    return f"Bearer {token}"


def pem(source: bytes | Path, what: str) -> bytes:
    """The PEM of ``source``.

    Raises:
        ConfigurationError: a file cannot be read, or holds no PEM; names it and ``what`` it is for.
    """
    if isinstance(source, bytes):
        return source
    try:
        data = source.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{what}: cannot read {source}: {error.strerror}") from None
    if b"-----BEGIN " not in data:
        raise ConfigurationError(f"{what}: {source} holds no PEM")
    return data
