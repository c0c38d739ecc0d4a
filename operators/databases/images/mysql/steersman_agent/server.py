"""The server process below this agent, and its data on the volume."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .group import LocalServer, Unreachable

_LONG = 3600.0  # seconds that a server may take to end after it has copied another


class Trouble(Exception):
    """What was to be done with the server or its data did not succeed."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where things are, and what is run. The defaults are the pod's; tests have others."""

    volume: Path = Path("/var/lib/steersman/data")
    run: Path = Path("/run/steersman")
    tls: Path = Path("/etc/steersman/tls")
    peer: Path = Path("/etc/steersman/peer")
    accounts: Path = Path("/etc/steersman/mysql/accounts.sql")
    defaults: Path = Path("/usr/local/share/steersman/mysql.cnf")
    program: Sequence[str] = ("mysqld",)
    host: str = "127.0.0.1"
    port: int = 3306
    instance: int = 0

    @property
    def data(self) -> Path:
        return self.volume / "mysql"

    @property
    def socket(self) -> Path:
        return self.run / "mysqld.sock"

    @property
    def address(self) -> str:
        """As other members reach it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def take_volume(place: Place, seconds: float = 60) -> None:
    """Holds the volume for life; another container may still be leaving it. Raises Trouble."""
    if not os.access(place.volume, os.W_OK):
        raise Trouble(
            f"user {os.getuid()} cannot write to {place.volume}: set fsGroup 10001 or change the volume's owner"
        )
    lock = os.open(place.volume / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(lock, True)  # The server has it too: it may outlive this process for a moment.
    end = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise Trouble(f"another server uses {place.volume}") from None
            time.sleep(0.2)


class Server:
    """One mysqld with its data, started and stopped."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_data(self) -> bool:
        """The directory gets its name when it is complete."""
        return self.place.data.exists()

    def initialise(self) -> None:
        """Make data with nothing in them but who members are to each other. Raises Trouble."""
        self._complete(self._made())

    def start(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        """Start it with the member's own options, which have the last word over the declared parameters."""
        self._process = self._started({**parameters, **options}, "member")

    def stop(self, seconds: float = 60) -> None:
        """End it in order, and by force if it takes longer."""
        if self._process is not None:
            _end(self._process, seconds)

    def copy(self, options: Mapping[str, str], host: str, port: int) -> None:
        """Have a server with nothing in it take another's data, which are then this one's. Raises Trouble."""
        made = self._made()
        socket = self.place.run / "copying.sock"
        apart = {"datadir": str(made), "socket": str(socket), "pid_file": f"{socket}.pid", "skip_networking": "ON"}
        process = self._started({**options, **apart}, "copying")
        try:
            local = LocalServer(str(socket))
            _await_answer(local, process)
            local.clone(host, port)
            if process.wait(_LONG):
                raise Trouble(f"the copy ended with {process.returncode}")
        except Unreachable as error:
            raise Trouble(f"instance at {host} could not be copied: {error}") from error
        finally:
            _end(process, 5)
        self._complete(made)

    def _made(self) -> Path:
        unfinished = self.place.volume / ".mysql.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        setup = self.place.run / "setup.sql"
        setup.write_text(
            # They are no transactions of the group's: who had them of his own could not join it.
            "SET SESSION sql_log_bin = OFF;\n"
            "INSTALL PLUGIN auth_socket SONAME 'auth_socket.so';\n"
            f"ALTER USER root@localhost IDENTIFIED WITH auth_socket AS '{pwd.getpwuid(os.getuid()).pw_name}';\n"
            + self.place.accounts.read_text()
        )
        # The suppressed warning tells of the empty password that root has until the SQL takes it away.
        options = ["--log-error-suppression-list=MY-010453", "--initialize-insecure", f"--init-file={setup}"]
        command = [*self.place.program, f"--defaults-file={self.place.defaults}", f"--datadir={unfinished}", *options]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Trouble(f"the data could not be made: mysqld ended with {done.returncode}")
        return unfinished

    def _complete(self, made: Path) -> None:
        os.sync()
        made.rename(self.place.data)
        os.sync()

    def _started(self, options: Mapping[str, str], name: str) -> subprocess.Popen[bytes]:
        file = self.place.run / f"{name}.cnf"
        lines = [f"!include {self.place.defaults}", "[mysqld]"]
        lines += [f"{option} = {_quoted(value)}" for option, value in options.items()]
        file.write_text("\n".join(lines) + "\n")
        # A restarted container finds its predecessor's socket, and nobody must take it for the new server's.
        Path(options["socket"]).unlink(missing_ok=True)
        return subprocess.Popen([*self.place.program, f"--defaults-file={file}"], stdin=subprocess.DEVNULL)


def _await_answer(local: LocalServer, process: subprocess.Popen[bytes]) -> None:
    while True:
        try:
            local.look()
        except Unreachable:
            if process.poll() is not None:
                raise Trouble(f"mysqld ended with {process.returncode}") from None
            time.sleep(0.2)
        else:
            return


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def options(place: Place, group: str) -> dict[str, str]:
    """What makes a server a member, by the names of system variables.

    `member_expel_timeout` 0: who is silent for the five seconds that the group's own detector takes is put out at
    once; a longer time only lengthens a failover. `unreachable_majority_timeout`: who is cut off takes no writes from
    the first moment, and gives his clients up after 10 s. `exit_state_action` OFFLINE_MODE: they are disconnected, so
    that nobody goes on reading what is stale. `autorejoin_tries` 0: the agent joins again, and says why. With
    `consistency` BEFORE_ON_PRIMARY_FAILOVER a new primary shows nobody less than the former has shown.
    """
    recovery = {
        "ssl_ca": str(place.tls / "ca.crt"),
        "ssl_cert": str(place.peer / "tls.crt"),
        "ssl_key": str(place.peer / "tls.key"),
    }
    plugin = {
        "group_name": group,
        "start_on_boot": "OFF",
        "bootstrap_group": "OFF",
        "communication_stack": "MYSQL",
        "local_address": place.address,
        "ssl_mode": "VERIFY_CA",
        "single_primary_mode": "ON",
        "enforce_update_everywhere_checks": "OFF",
        "consistency": "BEFORE_ON_PRIMARY_FAILOVER",
        "gtid_assignment_block_size": "1",
        "clone_threshold": "9223372036854775807",
        "member_expel_timeout": "0",
        "unreachable_majority_timeout": "10",
        "exit_state_action": "OFFLINE_MODE",
        "autorejoin_tries": "0",
        "recovery_use_ssl": "ON",
        "recovery_ssl_verify_server_cert": "OFF",
        **{f"recovery_{name}": value for name, value in recovery.items()},
    }
    return {
        "datadir": str(place.data),
        "socket": str(place.socket),
        "pid_file": str(place.run / "mysqld.pid"),
        "port": str(place.port),
        "bind_address": "*",
        "report_host": place.host,
        "report_port": str(place.port),
        "server_id": str(place.instance + 1),
        "mysqlx": "OFF",
        "skip_name_resolve": "ON",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "log_bin": "binlog",
        "relay_log": "relay",
        "log_replica_updates": "ON",
        "sync_binlog": "1",
        "innodb_flush_log_at_trx_commit": "1",
        # What it had said before a restart: writable is only who the group makes its primary.
        "super_read_only": "ON",
        "plugin_load_add": "group_replication.so;mysql_clone.so",
        "ssl_ca": str(place.peer / "ca.crt"),
        "ssl_cert": str(place.tls / "tls.crt"),
        "ssl_key": str(place.tls / "tls.key"),
        **{f"loose_clone_{name}": value for name, value in recovery.items()},
        **{f"loose_group_replication_{name}": value for name, value in plugin.items()},
    }


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
