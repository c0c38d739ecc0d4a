"""Credentials from exec plugins, such as those of cloud providers.

Source: "Authenticating", section "client-go credential plugins"; ``client.authentication.k8s.io/v1``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

import msgspec

from steersman.client.credentials import Credentials, Identity, bearer_header
from steersman.errors import CredentialsFailed

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
InteractiveMode = Literal["Never", "IfAvailable", "Always"]

# A user needs minutes to log in with a browser. A program without interaction needs less than one.
_TIMEOUT_SECONDS, _INTERACTIVE_TIMEOUT_SECONDS = 60.0, 300.0
# If the server rejects fresh credentials as well, the plugin must not run for each request.
_MIN_REFRESH_INTERVAL_SECONDS = 10.0
_MAX_STDERR_CHARACTERS = 1024
# JSON web tokens, authorization headers, assignments to names such as password, and PEM.
_SECRET_PATTERN = re.compile(
    r"""eyJ[\w-]{8,}\.[\w.-]+|(?i:bearer)\s+\S+|(?i:basic)\s+[\w+/=]{12,}"""
    r"""|(?i:passw(?:or)?d|secret|token|key)["']?\s*[=:]\s*\S+|-----BEGIN [\s\S]*"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """Command and options of a plugin, from ``exec`` in a kubeconfig.

    Attributes:
        command: name of a program on PATH, or its path.
        arguments: arguments of the program. They are passed without a shell.
        environment: variables to add to the environment of this process.
        api_version: one of ``API_VERSIONS``.
        interactive_mode: access of the program to standard input: ``Never``, ``IfAvailable`` (if it is a terminal) or
            ``Always`` (required).
        install_hint: text for the error message if the program is not installed.
        cluster: ``spec.cluster`` of the ExecCredential that is passed to the program. Defaults to none.
        source: file and field, for error messages.
    """

    command: str
    arguments: tuple[str, ...] = field(default=(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    api_version: str = API_VERSIONS[0]
    interactive_mode: InteractiveMode = "Never"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    source: str = "exec"


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecPluginCredentials(Credentials):
    """Credentials from an exec plugin, cached until they expire or are rejected.

    Concurrent callers share one run of the plugin.

    Args:
        plugin: command and options of the plugin.
        now: returns the wall clock time in seconds since 1970.
    """

    def __init__(self, plugin: ExecPlugin, now: Callable[[], float] = time.time) -> None:
        self.plugin = plugin
        self._now = now
        self._lock = threading.Lock()
        self._identity: Identity | None = None
        self._obtained_at = self._expires_at = float("-inf")

    def __repr__(self) -> str:
        return f"PluginCredentials({self.plugin!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecPluginCredentials) and other.plugin == self.plugin

    def __hash__(self) -> int:
        return hash((self.plugin.command, self.plugin.source))

    def load(self, rejected: Identity | None = None) -> Identity:
        with self._lock:
            if self._identity is None or self._now() >= self._expires_at or self._was_rejected(rejected):
                self._identity, self._expires_at = self._fetch()
                self._obtained_at = self._now()
            return replace(self._identity, valid_for=self._expires_at - self._now())

    def _was_rejected(self, rejected: Identity | None) -> bool:
        # Another thread may have replaced the rejected credentials already.
        if rejected is None or self._identity is None:
            return False
        return (
            _share_credential(rejected, self._identity)
            and self._now() - self._obtained_at >= _MIN_REFRESH_INTERVAL_SECONDS
        )

    def _fetch(self) -> tuple[Identity, float]:
        credential = self._decode(self._run())
        if credential.api_version != self.plugin.api_version or credential.kind != "ExecCredential":
            raise self._error(
                f"returned {credential.api_version or 'no apiVersion'} instead of {self.plugin.api_version}"
            )
        status = credential.status or _Status()
        if not status.token and not status.client_certificate_data:
            raise self._error("returned neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._error("returned only one of clientCertificateData and clientKeyData")
        source = f"{self.plugin.source}: {self.plugin.command}"
        identity = Identity(
            authorization=bearer_header(status.token, source) if status.token else None,
            certificate=status.client_certificate_data.encode() or None,
            key=status.client_key_data.encode() or None,
            source=f"certificate and key from {source}",
        )
        expires = status.expiration_timestamp
        return identity, expires.timestamp() if expires else float("inf")

    def _decode(self, stdout: bytes) -> _ExecCredential:
        try:
            return msgspec.json.decode(stdout, type=_ExecCredential)
        except msgspec.DecodeError as error:
            # The message of msgspec names the field and never quotes a value, which may be a part of a token.
            raise self._error(f"returned an invalid ExecCredential: {error}") from None

    def _run(self) -> bytes:
        plugin, interactive = self.plugin, self._is_interactive()
        program = shutil.which(plugin.command)
        if program is None:
            hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
            raise self._error(f"is not installed or not executable{hint}")
        process = self._start(program, interactive)
        try:
            stdout, stderr = process.communicate(
                timeout=_INTERACTIVE_TIMEOUT_SECONDS if interactive else _TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            self._kill(process, group=not interactive)
            raise self._error("timed out") from None
        except BaseException:
            self._kill(process, group=not interactive)
            raise
        if process.returncode != 0:
            raise self._error(f"exited with code {process.returncode}{self._redact_stderr(stderr)}")
        return stdout

    def _start(self, program: str, interactive: bool) -> subprocess.Popen[bytes]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.plugin.cluster is not None:
            spec["cluster"] = self.plugin.cluster
        exec_info = {"apiVersion": self.plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **self.plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(exec_info)}
        try:
            return subprocess.Popen(
                [program, *self.plugin.arguments],
                env=environment,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A session of its own can be killed with all child processes. Interactive plugins share our terminal.
                start_new_session=not interactive,
            )
        except OSError as error:
            raise self._error(f"cannot be executed: {error.strerror}") from None

    def _kill(self, process: subprocess.Popen[bytes], group: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def _is_interactive(self) -> bool:
        terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]
        if self.plugin.interactive_mode == "Always" and not terminal:
            raise self._error("requires a terminal (interactiveMode is Always), but standard input is not a terminal")
        return terminal and self.plugin.interactive_mode != "Never"

    def _redact_stderr(self, stderr: bytes) -> str:
        """Return the end of the plugin's standard error without secrets."""
        text = stderr.decode(errors="replace").strip()
        for value in self.plugin.environment.values():
            if len(value) >= 8:
                text = text.replace(value, "[hidden]")
        text = _SECRET_PATTERN.sub("[hidden]", text)
        return f": {text[-_MAX_STDERR_CHARACTERS:]}" if text else ""

    def _error(self, problem: str) -> CredentialsFailed:
        return CredentialsFailed(f"{self.plugin.source}: {self.plugin.command} {problem}")


def _share_credential(one: Identity, other: Identity) -> bool:
    """Return True if the identities have the same token or certificate.

    A ``CredentialChain`` may have added the other parts of a rejected identity.
    """
    return (one.authorization is not None and one.authorization == other.authorization) or (
        one.certificate is not None and one.certificate == other.certificate
    )
