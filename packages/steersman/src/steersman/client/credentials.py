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
FILE_RELOAD_INTERVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What is shown to the server.

    Attributes:
        authorization: value of the ``Authorization`` header.
        certificate: PEM of the client certificate and those between it and the authority.
        key: PEM of its private key, not encrypted.
        valid_for: seconds after which ``Credentials.load`` must be asked again.
        source: origin of certificate and key, for error messages.
    """

    authorization: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    valid_for: float = field(default=math.inf, compare=False)
    source: str = field(default="client certificate and key", compare=False)


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
        return Identity(bearer_header(self.token, "token"))


@dataclass(frozen=True, slots=True)
class BasicAuth(Credentials):
    """User name and password, as some proxies before API servers ask for; API servers know them no more."""

    username: str
    password: str = field(repr=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        user_pass = f"{self.username}:{self.password}".encode()
        return Identity(f"Basic {base64.b64encode(user_pass).decode()}")


class TokenFile(Credentials):
    """A bearer token in a file that somebody rotates, as the kubelet does with a pod's. Read again every minute.

    Args:
        path: the file.
        fallback: the token to use while the file cannot be read.
    """

    def __init__(self, path: Path, fallback: str | None = None) -> None:
        self.path = path
        self._last_token = fallback

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
            content = self.path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            if self._last_token is None:
                raise CredentialsFailed(f"cannot read the token file {self.path}: {reason}") from None
            log.warning("token file unreadable, using the last token", file=str(self.path), error=reason)
        else:
            if not content and self._last_token is None:
                raise CredentialsFailed(f"the token file {self.path} is empty")
            # Some writers truncate first: an empty file is one that is being written.
            self._last_token = content or self._last_token
        return Identity(
            bearer_header(self._last_token or "", f"token file {self.path}"), valid_for=FILE_RELOAD_INTERVAL_SECONDS
        )


@dataclass(frozen=True, slots=True)
class ClientCertificate(Credentials):
    """A client certificate and its key: PEM, or files that are read again every minute.

    Connections that are open keep the pair they began with; new ones show the new pair.
    ``source`` names them in error messages.
    """

    certificate: bytes | Path = field(repr=False)
    key: bytes | Path = field(repr=False)
    source: str = field(default="client certificate and key", compare=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        """Certificate and key, from their files if they are in some. Raises ConfigurationError."""
        from_files = isinstance(self.certificate, Path) or isinstance(self.key, Path)
        return Identity(
            certificate=load_pem(self.certificate, "client certificate"),
            key=load_pem(self.key, "client key"),
            valid_for=FILE_RELOAD_INTERVAL_SECONDS if from_files else math.inf,
            source=self.source,
        )


@dataclass(frozen=True, slots=True)
class CredentialChain(Credentials):
    """Several at once, such as a certificate and a token; of each kind the first counts."""

    providers: tuple[Credentials, ...]

    def load(self, rejected: Identity | None = None) -> Identity:
        identities = [part.load(rejected) for part in self.providers]
        authorization = next((i.authorization for i in identities if i.authorization), None)
        with_certificate = next((i for i in identities if i.certificate), Identity())
        return replace(with_certificate, authorization=authorization, valid_for=min(i.valid_for for i in identities))


def bearer_header(token: str, description: str) -> str:
    """The header for ``token``.

    Raises:
        CredentialsFailed: ``token`` has characters that no header may have; says it was ``what``, not what it is.
    """
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsFailed(f"{description}: a token has only printable ASCII characters and no spaces")
    return f"Bearer {token}"


def load_pem(value: bytes | Path, description: str) -> bytes:
    """The PEM of ``source``.

    Raises:
        ConfigurationError: a file cannot be read, or holds no PEM; names it and ``what`` it is for.
    """
    if isinstance(value, bytes):
        return value
    try:
        data = value.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{description}: cannot read {value}: {error.strerror}") from None
    if b"-----BEGIN " not in data:
        raise ConfigurationError(f"{description}: {value} holds no PEM")
    return data
