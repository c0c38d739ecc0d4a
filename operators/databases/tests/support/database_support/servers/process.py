"""Server programs on loopback, as processes of an unprivileged user, with their data in a temporary directory."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from steersman_databases.engines import ServerEndpoint

UNPRIVILEGED_UID = 65534
START_SECONDS = 60


class DatabaseServerProcess:
    """A server process of an unprivileged user. It ends with us, however we end."""

    def __init__(self, directory: Path, command: list[str]) -> None:
        self.log = directory / "output.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*unprivileged(), "--pdeathsig=KILL", *command],
                stdout=log,
                stderr=log,
                cwd=directory,
                env=environment(directory),
            )

    def wait_for(self, endpoint: ServerEndpoint) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection((endpoint.host, endpoint.port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"the server did not start:\n{self.log.read_text(errors='replace')}")

    def ended(self, seconds: float) -> int:
        """Waits until it ends by itself; its code. Raises subprocess.TimeoutExpired, and kills it."""
        try:
            return self._process.wait(seconds)
        finally:
            self._process.kill()

    def stop(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def unprivileged() -> list[str]:
    return [
        "setpriv",
        *(
            [f"--reuid={UNPRIVILEGED_UID}", f"--regid={UNPRIVILEGED_UID}", "--clear-groups"]
            if os.getuid() == 0
            else []
        ),
    ]


def environment(directory: Path) -> dict[str, str]:
    # A MariaDB that starts removes every #sql file of its TMPDIR, those of its neighbours too.
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "TMPDIR": str(directory)}


def run(command: list[str], directory: Path, stdin: str = "") -> None:
    done = subprocess.run(
        [*unprivileged(), *command],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment(directory),
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")


def program(name: str, *places: str) -> str:
    found = shutil.which(name, path=os.pathsep.join((*places, os.environ["PATH"])))
    if found is None:
        raise RuntimeError(f"{name} is missing; on Debian: apt-get install postgresql-15 mariadb-server-core")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def data_directory() -> Generator[Path]:
    # Not pytest's own: nobody else may enter that. In memory where there is room, since each new database of
    # PostgreSQL is three hundred files.
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * 2**30
    with tempfile.TemporaryDirectory(
        prefix="steersman-", dir=memory if roomy else None, ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        certify(directory)
        if os.getuid() == 0:
            for path in (directory, *directory.iterdir()):
                os.chown(path, UNPRIVILEGED_UID, UNPRIVILEGED_UID)
        yield directory


def certify(directory: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = directory / "key.pem"
    private.touch(0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
