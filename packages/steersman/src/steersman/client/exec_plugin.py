"""Credentials from a program, as clouds hand them out.

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

from steersman.client.credentials import Credentials, Identity, bearer
from steersman.errors import CredentialsFailed

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
InteractiveMode = Literal["Never", "IfAvailable", "Always"]

# A person who logs in through a browser needs minutes; a program that does not answer in one is stuck.
_PATIENCE, _PATIENCE_WITH_PEOPLE = 60.0, 300.0
# Who is refused for another reason than its age would else have the plugin run at each request.
_LEAST_INTERVAL = 10.0
_SHOWN = 1024
# JSON web tokens, authorization headers, assignments to telling names, PEM.
_SECRETS = re.compile(
    r"""eyJ[\w-]{8,}\.[\w.-]+|(?i:bearer)\s+\S+|(?i:basic)\s+[\w+/=]{12,}"""
    r"""|(?i:passw(?:or)?d|secret|token|key)["']?\s*[=:]\s*\S+|-----BEGIN [\s\S]*"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlugin:
    """How to run a plugin; see ``exec`` in a kubeconfig.

    Attributes:
        command: a program on PATH, or its path.
        arguments: of the program; run without a shell.
        environment: variables added to our own.
        api_version: one of ``API_VERSIONS``.
        interactive_mode: whether the program may, or must, talk to somebody on standard input.
        install_hint: shown when there is no such program.
        cluster: ``spec.cluster`` of what the program is told; None tells it nothing of the cluster.
        where: file and field, for errors.
    """

    command: str
    arguments: tuple[str, ...] = field(default=(), repr=False)
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    api_version: str = API_VERSIONS[0]
    interactive_mode: InteractiveMode = "Never"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    where: str = "exec"


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class PluginCredentials(Credentials):
    """What a plugin answers, kept until it expires or the server refuses it. The plugin runs once for all who wait.

    Args:
        plugin: the program.
        now: the wall clock, in seconds since 1970.
    """

    def __init__(self, plugin: ExecPlugin, now: Callable[[], float] = time.time) -> None:
        self.plugin = plugin
        self._now = now
        self._lock = threading.Lock()
        self._identity: Identity | None = None
        self._obtained = self._expires = float("-inf")

    def __repr__(self) -> str:
        return f"PluginCredentials({self.plugin!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PluginCredentials) and other.plugin == self.plugin

    def __hash__(self) -> int:
        return hash((self.plugin.command, self.plugin.where))

    def load(self, rejected: Identity | None = None) -> Identity:
        with self._lock:
            if self._identity is None or self._now() >= self._expires or self._is_refused(rejected):
                self._identity, self._expires = self._ask()
                self._obtained = self._now()
            return replace(self._identity, valid_for=self._expires - self._now())

    def _is_refused(self, rejected: Identity | None) -> bool:
        # Another may have asked anew since: then what we hold is not what was refused.
        if rejected is None or self._identity is None:
            return False
        return _share(rejected, self._identity) and self._now() - self._obtained >= _LEAST_INTERVAL

    def _ask(self) -> tuple[Identity, float]:
        answer = self._decode(self._run())
        if answer.api_version != self.plugin.api_version or answer.kind != "ExecCredential":
            raise self._failure(f"answered {answer.api_version or 'no apiVersion'}, not {self.plugin.api_version}")
        status = answer.status or _Status()
        if not status.token and not status.client_certificate_data:
            raise self._failure("answered neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failure("answered only one of clientCertificateData and clientKeyData")
        named = f"{self.plugin.where}: {self.plugin.command}"
        identity = Identity(
            authorization=bearer(status.token, named) if status.token else None,
            certificate=status.client_certificate_data.encode() or None,
            key=status.client_key_data.encode() or None,
            origin=f"certificate and key from {named}",
        )
        expires = status.expiration_timestamp
        return identity, expires.timestamp() if expires else float("inf")

    def _decode(self, output: bytes) -> _ExecCredential:
        try:
            return msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            # msgspec's messages name the field and never quote a value; what was answered may be half a token.
            raise self._failure(f"answered no ExecCredential: {error}") from None

    def _run(self) -> bytes:
        plugin, interactive = self.plugin, self._is_interactive()
        program = shutil.which(plugin.command)
        if program is None:
            hint = f"\n{plugin.install_hint}" if plugin.install_hint else ""
            raise self._failure(f"is not installed or cannot be executed{hint}")
        process = self._start(program, interactive)
        try:
            output, errors = process.communicate(timeout=_PATIENCE_WITH_PEOPLE if interactive else _PATIENCE)
        except subprocess.TimeoutExpired:
            self._kill(process, group=not interactive)
            raise self._failure("did not answer in time") from None
        except BaseException:
            self._kill(process, group=not interactive)
            raise
        if process.returncode != 0:
            raise self._failure(f"exited with code {process.returncode}{self._words(errors)}")
        return output

    def _start(self, program: str, interactive: bool) -> subprocess.Popen[bytes]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.plugin.cluster is not None:
            spec["cluster"] = self.plugin.cluster
        told = {"apiVersion": self.plugin.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **self.plugin.environment, "KUBERNETES_EXEC_INFO": json.dumps(told)}
        try:
            return subprocess.Popen(
                [program, *self.plugin.arguments],
                env=environment,
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # A group of its own can be ended with all that it started; a terminal belongs to one group only.
                start_new_session=not interactive,
            )
        except OSError as error:
            raise self._failure(f"cannot be executed: {error.strerror}") from None

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
            raise self._failure("interactiveMode is Always, and standard input is no terminal")
        return terminal and self.plugin.interactive_mode != "Never"

    def _words(self, errors: bytes) -> str:
        """The end of what the plugin complained, without what may be secret."""
        text = errors.decode(errors="replace").strip()
        for value in self.plugin.environment.values():
            if len(value) >= 8:
                text = text.replace(value, "[hidden]")
        text = _SECRETS.sub("[hidden]", text)
        return f": {text[-_SHOWN:]}" if text else ""

    def _failure(self, what: str) -> CredentialsFailed:
        return CredentialsFailed(f"{self.plugin.where}: {self.plugin.command} {what}")


def _share(one: Identity, other: Identity) -> bool:
    """Whether they have a token or a certificate in common: what was refused may have had parts from elsewhere."""
    return (one.authorization is not None and one.authorization == other.authorization) or (
        one.certificate is not None and one.certificate == other.certificate
    )
