"""Credentials for the API server: tokens, client certificates, and their files.

Each kind implements ``Credentials.load``. Reading files and running plugins blocks, so the transport calls it in a
thread. It caches the identity for ``Identity.valid_for`` seconds, so that most requests need no system call.
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

# The kubelet rotates projected tokens after 80 % of an hour, and client-go reloads them every minute. If a token is
# rotated faster, the server responds 401, and the file is reloaded at once.
FILE_RELOAD_INTERVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The credential of a request: authorization header, client certificate, or both.

    Attributes:
        authorization: value of the ``Authorization`` header.
        certificate: PEM of the client certificate and the intermediate certificates.
        key: PEM of its private key, not encrypted.
        valid_for: seconds after which ``Credentials.load`` must be called again. Defaults to infinity.
        source: origin of certificate and key, for error messages.
    """

    authorization: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    valid_for: float = field(default=math.inf, compare=False)
    source: str = field(default="client certificate and key", compare=False)


class Credentials(Protocol):
    """A source of identities. Transports in several threads may share it."""

    def load(self, rejected: Identity | None = None) -> Identity:
        """Return the current identity. May block.

        Args:
            rejected: identity to which the server responded 401. The method returns another one if it has one.

        Raises:
            CredentialsFailed: there is no credential. The message names the file or plugin.
        """
        ...


@dataclass(frozen=True, slots=True)
class Anonymous(Credentials):
    """No credentials: the API server uses the user ``system:anonymous``."""

    def load(self, rejected: Identity | None = None) -> Identity:
        return Identity()


@dataclass(frozen=True, slots=True)
class StaticToken(Credentials):
    """A bearer token that never changes."""

    token: str = field(repr=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        """Return the token, even if it was rejected."""
        return Identity(bearer_header(self.token, "token"))


@dataclass(frozen=True, slots=True)
class BasicAuth(Credentials):
    """User name and password for a proxy before the API server.

    API servers themselves no longer support basic authentication.
    """

    username: str
    password: str = field(repr=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        user_pass = f"{self.username}:{self.password}".encode()
        return Identity(f"Basic {base64.b64encode(user_pass).decode()}")


class TokenFile(Credentials):
    """A bearer token in a file, such as a service account token.

    The file is reloaded every minute, because the kubelet rotates the token.

    Args:
        path: the file.
        fallback: token to use until the file can be read.
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
        """Return the token in the file.

        If the file cannot be read, the last token is returned.

        Raises:
            CredentialsFailed: the file has never been readable. The message has the reason.
        """
        try:
            content = self.path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "the file is not text"
            if self._last_token is None:
                raise CredentialsFailed(f"cannot read the token file {self.path}: {reason}") from None
            log.warning("token file unreadable, using the last token", file=str(self.path), error=reason)
        else:
            if not content and self._last_token is None:
                raise CredentialsFailed(f"the token file {self.path} is empty")
            # Some programs truncate the file before they write it, so an empty file is about to be written.
            self._last_token = content or self._last_token
        return Identity(
            bearer_header(self._last_token or "", f"token file {self.path}"), valid_for=FILE_RELOAD_INTERVAL_SECONDS
        )


@dataclass(frozen=True, slots=True)
class ClientCertificate(Credentials):
    """A client certificate and its key, as PEM or files.

    Files are reloaded every minute. Open connections keep their certificate. New connections use the new certificate.

    Attributes:
        certificate: PEM, or path of a PEM file.
        key: PEM of the private key, or path of a PEM file.
        source: origin of certificate and key, for error messages.
    """

    certificate: bytes | Path = field(repr=False)
    key: bytes | Path = field(repr=False)
    source: str = field(default="client certificate and key", compare=False)

    def load(self, rejected: Identity | None = None) -> Identity:
        """Return certificate and key, read from their files if they are paths.

        Raises:
            ConfigurationError: a file cannot be read or contains no PEM.
        """
        from_files = isinstance(self.certificate, Path) or isinstance(self.key, Path)
        return Identity(
            certificate=load_pem(self.certificate, "client certificate"),
            key=load_pem(self.key, "client key"),
            valid_for=FILE_RELOAD_INTERVAL_SECONDS if from_files else math.inf,
            source=self.source,
        )


@dataclass(frozen=True, slots=True)
class CredentialChain(Credentials):
    """Several credentials in one identity, such as a certificate and a token.

    The first authorization header and the first certificate take precedence.
    """

    providers: tuple[Credentials, ...]

    def load(self, rejected: Identity | None = None) -> Identity:
        identities = [part.load(rejected) for part in self.providers]
        authorization = next((i.authorization for i in identities if i.authorization), None)
        with_certificate = next((i for i in identities if i.certificate), Identity())
        return replace(with_certificate, authorization=authorization, valid_for=min(i.valid_for for i in identities))


def bearer_header(token: str, description: str) -> str:
    """Return the value of the ``Authorization`` header for a bearer token.

    Args:
        token: the bearer token.
        description: origin of the token, for error messages. They never quote the token.

    Raises:
        CredentialsFailed: ``token`` has characters that a header must not contain.
    """
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsFailed(f"{description}: the token must consist of printable ASCII characters without spaces")
    return f"Bearer {token}"


def load_pem(value: bytes | Path, description: str) -> bytes:
    """Return PEM, read from a file if ``value`` is a path.

    Args:
        value: PEM, or path of a PEM file.
        description: purpose of the PEM, for error messages.

    Raises:
        ConfigurationError: the file cannot be read or contains no PEM.
    """
    if isinstance(value, bytes):
        return value
    try:
        data = value.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{description}: cannot read {value}: {error.strerror}") from None
    if b"-----BEGIN " not in data:
        raise ConfigurationError(f"{description}: {value} contains no PEM")
    return data
