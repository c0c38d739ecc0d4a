"""The server process below this agent, and its data on the volume."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import group
from .group import LocalServer, Unreachable


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
    slices: Path = Path("/etc/steersman/mysql/slices")
    defaults: Path = Path("/usr/local/share/steersman/mysql.cnf")
    program: Sequence[str] = ("mysqld",)
    listen: str = "*"
    host: str = "127.0.0.1"
    port: int = 3306
    instance: int = 0

    @property
    def data(self) -> Path:
        return self.volume / "mysql"

    @property
    def temporary(self) -> Path:
        """What the server sorts and sets aside: as much as its largest table, so not in the pod's own."""
        return self.volume / "mysql.temporary"

    @property
    def socket(self) -> Path:
        return self.run / "mysqld.sock"

    @property
    def trusted(self) -> Path:
        """By which the server knows who may log in."""
        return self.run / "trusted.crt"

    @property
    def probes(self) -> Path:
        """What the agent tells the kubelet."""
        return self.run / "member"

    @property
    def address(self) -> str:
        """As other members reach it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_UNREADABLE = ("[MY-011904]", "[MY-011906]")
"""With these its log tells of a page that is not what it should be. It may end by that, or stand still: 9.7.4 does
where it meets them as it recovers."""


class Server:
    """One mysqld with its data, started and stopped. `local` asks it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.local = LocalServer(str(place.socket))
        self._process: subprocess.Popen[bytes] | None = None
        self._making: subprocess.Popen[bytes] | None = None
        self.last_words, self.unreadable = "", False

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def broke_off(self) -> bool:
        """Whether it has ended itself, and not in order. Who was killed says nothing of its data."""
        ended = None if self._process is None else self._process.poll()
        return ended not in (None, 0, -signal.SIGKILL, -signal.SIGTERM)

    @property
    def used(self) -> float:
        """Seconds of the processors' time that it has taken."""
        if self._process is None:
            return 0.0
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    @property
    def has_data(self) -> bool:
        """The directory gets its name when it is complete."""
        return self.place.data.exists()

    def ask(self, address: str) -> group.Look:
        """What another member says, asked as this one. Raises Unreachable, OSError, ValueError."""
        host, _, port = address.rpartition(":")
        tls = group.trust(self.place.tls / "ca.crt", self.place.peer / "tls.crt", self.place.peer / "tls.key")
        return group.look(host.strip("[]"), int(port), tls)

    def initialise(self) -> None:
        """Make data with nothing in them but who members are to each other. Raises Trouble."""
        self._make(self._unfinished)
        self._complete()

    def image_parameters(self) -> Mapping[str, str]:
        """What the image gives every server."""
        command = [*self.place.program, f"--defaults-file={self.place.defaults}", "--print-defaults"]
        told = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
        given = (word[2:].partition("=") for word in shlex.split(told) if word.startswith("--"))
        return {name.replace("-", "_"): value for name, _, value in given}

    def refused(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, str]:
        """Those of the parameters with which it would not start, and what it says of each.

        None of them where it would not without them either: what is wrong with ``options`` is its own to say.
        """
        if not self._objects(options, parameters) or self._objects(options, {}):
            return {}
        each = {name: self._objects(options, {name: value}) for name, value in parameters.items()}
        return {name: words for name, words in each.items() if words}

    def start(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        """Start it with the member's own options, which have the last word over the declared parameters."""
        for left in (self.place.temporary, self._former):
            shutil.rmtree(left, ignore_errors=True)
        file = self._configured(options, parameters, "member")
        # A restarted container finds its predecessor's socket, and nobody must take it for the new server's.
        self.place.socket.unlink(missing_ok=True)
        self.last_words, self.unreadable = "", False
        self._process = self._run(f"--defaults-file={file}", stderr=subprocess.PIPE)
        threading.Thread(target=self._pass_on, args=(self._process,), daemon=True).start()

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        """What it says goes into the container's log; the last error stays, and whether it cannot read its data."""
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            words = line.decode(errors="replace").partition("[ERROR]")[2].strip()
            # The last one of all only tells that there was another.
            if words and not words.endswith("Aborting"):
                self.unreadable |= words.startswith(_UNREADABLE)
                self.last_words = words

    def stop(self, seconds: float = 45) -> None:
        """End it in order, and by force if it takes longer."""
        if self._process is not None:
            _end(self._process, seconds)

    def abandon(self) -> None:
        """End what makes data: it is begun anew later."""
        if self._making is not None and self._making.poll() is None:
            self._making.kill()

    def copy(self, options: Mapping[str, str], host: str, port: int) -> None:
        """Have a server with nothing in it take another's data, which are then this one's. Raises Trouble.

        That server is for this alone: if it put them in place of its own, they would be where it is for good.
        """
        helper, socket = self.place.volume / "mysql.helper", self.place.run / "copying.sock"
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._make(helper)
        apart = {"datadir": str(helper), "socket": str(socket), "pid_file": f"{socket}.pid", "skip_networking": "ON"}
        socket.unlink(missing_ok=True)
        process = self._making = self._run(f"--defaults-file={self._configured({**options, **apart}, {}, 'copying')}")
        try:
            local = LocalServer(str(socket))
            _await_answer(local, process)
            local.clone(host, port, str(self._unfinished))
        except Unreachable as error:
            raise Trouble(f"instance at {host} could not be copied: {error}") from error
        finally:
            _end(process, 30)
            shutil.rmtree(helper, ignore_errors=True)
        self._complete()

    @property
    def _unfinished(self) -> Path:
        # Not hidden: InnoDB does not find tablespaces below a directory whose name begins with a dot.
        return self.place.volume / "mysql.unfinished"

    @property
    def _former(self) -> Path:
        return self.place.volume / "mysql.former"

    def _make(self, data: Path) -> None:
        shutil.rmtree(data, ignore_errors=True)
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
        self._making = self._run(f"--defaults-file={self.place.defaults}", f"--datadir={data}", *options)
        if ended := self._making.wait():
            raise Trouble(f"the data could not be made: mysqld ended with {ended}")

    def _complete(self) -> None:
        os.sync()
        shutil.rmtree(self._former, ignore_errors=True)
        if self.has_data:
            self.place.data.rename(self._former)
        self._unfinished.rename(self.place.data)
        os.sync()

    def _configured(self, options: Mapping[str, str], parameters: Mapping[str, str], name: str) -> Path:
        self.place.temporary.mkdir(exist_ok=True)
        file = self.place.run / f"{name}.cnf"
        lines = [f"!include {self.place.defaults}", "[mysqld]"]
        lines += [f"{name} = {_quoted(value)}" for name, value in {**parameters, **options}.items()]
        file.write_text("\n".join(lines) + "\n")
        return file

    def _run(self, *arguments: str, stderr: int | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self.place.program, *arguments], stdin=subprocess.DEVNULL, stderr=stderr)

    def _objects(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> str:
        """Why it would not start so; empty where it would."""
        file = self._configured(options, parameters, "tried")
        command = [*self.place.program, f"--defaults-file={file}", "--validate-config"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if not done.returncode:
            return ""
        lines = [line for line in done.stderr.splitlines() if "[ERROR]" in line]
        errors = [line.partition("[Server] ")[2].rpartition("/mysqld: ")[2] for line in lines]
        return errors[0] if errors else f"mysqld ended with {done.returncode}"


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
        **dict.fromkeys(("tmpdir", "innodb_tmpdir", "replica_load_tmpdir"), str(place.temporary)),
        "port": str(place.port),
        "bind_address": place.listen,
        # What somebody persisted over SQL would have the last word over all that stands here.
        "persisted_globals_load": "OFF",
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
        "ssl_ca": str(place.trusted),
        "ssl_cert": str(place.tls / "tls.crt"),
        "ssl_key": str(place.tls / "tls.key"),
        **{f"loose_clone_{name}": value for name, value in recovery.items()},
        **{f"loose_group_replication_{name}": value for name, value in plugin.items()},
    }


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
