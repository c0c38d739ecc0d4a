"""The server process of this agent, and its data on the volume."""

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

from steersman_pod.crash_log import CrashLog

from ..group import group_status
from ..group.group_status import LocalServer, ServerQueryFailed
from .system_accounts import write_init_file


class ServerFailed(Exception):
    """An operation on the server or its data failed."""


@dataclass(frozen=True, kw_only=True)
class ServerPaths:
    """Paths and programs. The defaults are the pod's."""

    volume: Path = Path("/var/lib/steersman/data")
    run: Path = Path("/run/steersman")
    tls: Path = Path("/etc/steersman/tls")
    peer: Path = Path("/etc/steersman/peer")
    accounts: Path = Path("/etc/steersman/mysql/accounts.sql")
    slices: Path = Path("/etc/steersman/mysql/endpoint-slices")
    defaults: Path = Path("/usr/local/share/steersman/mysql.cnf")
    time_zones: Path = Path("/usr/local/share/steersman/time-zones.sql")
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
        """Directory for temporary files on the volume.

        They may be as large as a table.
        """
        return self.volume / "mysql.temporary"

    @property
    def socket(self) -> Path:
        return self.run / "mysqld.sock"

    @property
    def trusted_ca(self) -> Path:
        """Authorities by which the server verifies clients."""
        return self.run / "trusted.crt"

    @property
    def report_file(self) -> Path:
        """The member as the agent last reported it, in JSON."""
        return self.run / "member.json"

    @property
    def slow_log(self) -> Path:
        """Slow query log, in memory."""
        return self.run / "slow.log"

    @property
    def probe_file(self) -> Path:
        """Readiness for the kubelet's probes."""
        return self.run / "member"

    @property
    def address(self) -> str:
        """Address for other members."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_UNREADABLE = ("[MY-011904]", "[MY-011906]")
"""Log messages about corrupt pages.

The server may end after these, or hang: 9.7.4 hangs if it meets them during recovery.
"""


class MySQLServer:
    """A mysqld process with its data. `local` queries it. `crashes` has the times at which it ended by itself."""

    def __init__(self, paths: ServerPaths) -> None:
        self.paths = paths
        self.local = LocalServer(str(paths.socket))
        self.crashes = CrashLog(paths.run / "crashes.json")
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: subprocess.Popen[bytes] | None = None
        self._initialising: subprocess.Popen[bytes] | None = None
        self.last_error, self.data_unreadable = "", False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_crashed(self) -> bool:
        """Return True if it ended by itself with an error.

        A killed server implies nothing about its data.
        """
        ended = None if self._process is None else self._process.poll()
        return ended not in (None, 0, -signal.SIGKILL, -signal.SIGTERM)

    @property
    def cpu_seconds(self) -> float:
        """CPU time that it has used, in seconds."""
        if self._process is None:
            return 0.0
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    @property
    def has_data(self) -> bool:
        """Return True if the directory exists.

        It gets its name when it is complete.
        """
        return self.paths.data.exists()

    def query_member(self, address: str) -> group_status.ServerStatus:
        """Return the status of another member.

        Raises ServerQueryFailed, OSError, ValueError.
        """
        host, _, port = address.rpartition(":")
        tls = group_status.member_ssl_context(
            self.paths.tls / "ca.crt", self.paths.peer / "tls.crt", self.paths.peer / "tls.key"
        )
        return group_status.query_member(host.strip("[]"), int(port), tls)

    def initialise(self) -> None:
        """Create data that contain only the members' accounts. Raises ServerFailed."""
        # An image without this file has no named time zones. Replicas copy the tables of the first member.
        named = self.paths.time_zones.read_text() if self.paths.time_zones.exists() else ""
        self._initialise_into(self._unfinished, f"USE mysql;\n{named}" if named else "")
        self._publish_data()

    def image_parameters(self) -> Mapping[str, str]:
        """Return the image's parameters for all servers."""
        command = [*self.paths.program, f"--defaults-file={self.paths.defaults}", "--print-defaults"]
        reported = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        ).stdout
        given = (word[2:].partition("=") for word in shlex.split(reported) if word.startswith("--"))
        return {name.replace("-", "_"): value for name, _, value in given}

    def rejected_parameters(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters that prevent a start, with the server's messages.

        Empty if the server would not start without them either: problems of `options` are reported elsewhere.
        """
        if not self._validate_options(options, parameters) or self._validate_options(options, {}):
            return {}
        each = {name: self._validate_options(options, {name: value}) for name, value in parameters.items()}
        return {name: message for name, message in each.items() if message}

    def start(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        """Start the server. The member's own options override declared parameters.

        It has its accounts before it accepts connections, whatever happened to them.
        """
        for left in (self.paths.temporary, self._former):
            shutil.rmtree(left, ignore_errors=True)
        init_file = self.paths.run / "accounts.sql"
        write_init_file(init_file, self.paths.accounts)
        file = self._write_defaults({**options, "init_file": str(init_file)}, parameters, "member")
        # A restarted container finds the socket of its predecessor, which must not be taken for the new server's.
        self.paths.socket.unlink(missing_ok=True)
        self.last_error, self.data_unreadable = "", False
        self._process = self._run(f"--defaults-file={file}", stderr=subprocess.PIPE)
        threading.Thread(target=self._forward_output, args=(self._process,), daemon=True).start()

    def _forward_output(self, process: subprocess.Popen[bytes]) -> None:
        """Forward the output to the container's log until the server ends.

        It keeps the last error, and records unreadable data and a crash.
        """
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            message = line.decode(errors="replace").partition("[ERROR]")[2].strip()
            # The last error only refers to a previous one.
            if message and not message.endswith("Aborting"):
                self.data_unreadable |= message.startswith(_UNREADABLE)
                self.last_error = message
        if process.wait() != 0 and process is not self._stopped:
            self.crashes.record_crash()

    def stop(self, seconds: float = 45) -> None:
        """Stop the server, and kill it after the timeout."""
        if self._process is not None:
            self._stopped = self._process
            _stop_process(self._process, seconds)

    def abort_initialisation(self) -> None:
        """Abort the creation of data, which starts again later."""
        if self._initialising is not None and self._initialising.poll() is None:
            self._initialising.kill()

    def clone_from(self, options: Mapping[str, str], host: str, port: int) -> None:
        """Replace the data by a copy of another server's. Raises ServerFailed.

        An empty helper server receives the copy. If it replaced its own data by the copy, they would permanently be
        in its
        directory.
        """
        helper, socket = self.paths.volume / "mysql.helper", self.paths.run / "copying.sock"
        shutil.rmtree(self._unfinished, ignore_errors=True)
        self._initialise_into(helper)
        clone_paths = {
            "datadir": str(helper),
            "socket": str(socket),
            "pid_file": f"{socket}.pid",
            "skip_networking": "ON",
        }
        socket.unlink(missing_ok=True)
        process = self._initialising = self._run(
            f"--defaults-file={self._write_defaults({**options, **clone_paths}, {}, 'copying')}"
        )
        try:
            local = LocalServer(str(socket))
            _wait_until_ready(local, process)
            local.clone_from(host, port, str(self._unfinished))
        except ServerQueryFailed as error:
            raise ServerFailed(f"instance at {host} could not be copied: {error}") from error
        finally:
            _stop_process(process, 30)
            shutil.rmtree(helper, ignore_errors=True)
        self._publish_data()

    @property
    def _unfinished(self) -> Path:
        # Not hidden: InnoDB does not find tablespaces below a directory whose name begins with a dot.
        return self.paths.volume / "mysql.unfinished"

    @property
    def _former(self) -> Path:
        return self.paths.volume / "mysql.former"

    def _initialise_into(self, data: Path, statements: str = "") -> None:
        shutil.rmtree(data, ignore_errors=True)
        setup = self.paths.run / "setup.sql"
        setup.write_text(
            # Without the binary log: a member with such transactions of its own could not join the group.
            "SET SESSION sql_log_bin = OFF;\n"
            "INSTALL PLUGIN auth_socket SONAME 'auth_socket.so';\n"
            f"ALTER USER root@localhost IDENTIFIED WITH auth_socket AS '{pwd.getpwuid(os.getuid()).pw_name}';\n"
            + self.paths.accounts.read_text()
            + statements
        )
        # The suppressed warning is about root's empty password, which the SQL then replaces.
        options = ["--log-error-suppression-list=MY-010453", "--initialize-insecure", f"--init-file={setup}"]
        self._initialising = self._run(f"--defaults-file={self.paths.defaults}", f"--datadir={data}", *options)
        if ended := self._initialising.wait():
            raise ServerFailed(f"the data could not be made: mysqld ended with {ended}")

    def _publish_data(self) -> None:
        os.sync()
        shutil.rmtree(self._former, ignore_errors=True)
        if self.has_data:
            self.paths.data.rename(self._former)
        self._unfinished.rename(self.paths.data)
        os.sync()

    def _write_defaults(self, options: Mapping[str, str], parameters: Mapping[str, str], name: str) -> Path:
        self.paths.temporary.mkdir(exist_ok=True)
        file = self.paths.run / f"{name}.cnf"
        lines = [f"!include {self.paths.defaults}", "[mysqld]"]
        lines += [f"{name} = {_quoted(value)}" for name, value in {**parameters, **options}.items()]
        file.write_text("\n".join(lines) + "\n")
        return file

    def _run(self, *arguments: str, stderr: int | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self.paths.program, *arguments], stdin=subprocess.DEVNULL, stderr=stderr)

    def _validate_options(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> str:
        """Return why it would not start with these options, or ""."""
        file = self._write_defaults(options, parameters, "tried")
        command = [*self.paths.program, f"--defaults-file={file}", "--validate-config"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if not done.returncode:
            return ""
        lines = [line for line in done.stderr.splitlines() if "[ERROR]" in line]
        errors = [line.partition("[Server] ")[2].rpartition("/mysqld: ")[2] for line in lines]
        return errors[0] if errors else f"mysqld ended with {done.returncode}"


def _wait_until_ready(local: LocalServer, process: subprocess.Popen[bytes]) -> None:
    while True:
        try:
            local.query_status()
        except ServerQueryFailed:
            if process.poll() is not None:
                raise ServerFailed(f"mysqld ended with {process.returncode}") from None
            time.sleep(0.2)
        else:
            return


def _stop_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def options(paths: ServerPaths, group: str) -> dict[str, str]:
    """Return the system variables that make a server a member.

    `member_expel_timeout` 0: a silent member is expelled after the five seconds of the failure detector. More would
    only lengthen a failover. `unreachable_majority_timeout`: a partitioned member accepts no writes from the start,
    and
    disconnects its clients after 10 s. `exit_state_action` OFFLINE_MODE disconnects them, so that they read no stale
    data. `autorejoin_tries` 0: the agent joins again, and reports why. With `consistency` BEFORE_ON_PRIMARY_FAILOVER
    a
    new primary never shows older data than the previous one.
    """
    recovery = {
        "ssl_ca": str(paths.tls / "ca.crt"),
        "ssl_cert": str(paths.peer / "tls.crt"),
        "ssl_key": str(paths.peer / "tls.key"),
    }
    plugin = {
        "group_name": group,
        "start_on_boot": "OFF",
        "bootstrap_group": "OFF",
        "communication_stack": "MYSQL",
        "local_address": paths.address,
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
        "datadir": str(paths.data),
        "socket": str(paths.socket),
        "pid_file": str(paths.run / "mysqld.pid"),
        **dict.fromkeys(("tmpdir", "innodb_tmpdir", "replica_load_tmpdir"), str(paths.temporary)),
        "port": str(paths.port),
        "bind_address": paths.listen,
        # Values of SET PERSIST would override all options here.
        "persisted_globals_load": "OFF",
        "report_host": paths.host,
        "report_port": str(paths.port),
        "server_id": str(paths.instance + 1),
        "mysqlx": "OFF",
        "slow_query_log_file": str(paths.slow_log),
        "skip_name_resolve": "ON",
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "log_bin": "binlog",
        "relay_log": "relay",
        "log_replica_updates": "ON",
        "sync_binlog": "1",
        "innodb_flush_log_at_trx_commit": "1",
        # Only the primary of the group becomes writable, whatever the state before a restart.
        "super_read_only": "ON",
        "plugin_load_add": "group_replication.so;mysql_clone.so",
        "ssl_ca": str(paths.trusted_ca),
        "ssl_cert": str(paths.tls / "tls.crt"),
        "ssl_key": str(paths.tls / "tls.key"),
        **{f"loose_clone_{name}": value for name, value in recovery.items()},
        **{f"loose_group_replication_{name}": value for name, value in plugin.items()},
    }


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
