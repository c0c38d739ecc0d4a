"""Main loop of the agent: inspect, decide, report, act.

Lengthy operations run in another thread, one at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from steersman_instance.gtids import GtidSet
from steersman_instance.write_check import mysql as write_check
from steersman_instance.write_check.check import WriteCheck
from steersman_pod import rw_endpoints
from steersman_pod.contract import CONTRACT

from .failures import ACCOUNTS_RESTORE, CERTIFICATE_RELOAD, FailureLog
from .group import group_config, group_status
from .group.decision import GroupMember, GroupView, MemberDecision, MemberState, Operation, decide
from .group.errant_transactions import ErrantTransactions
from .group.group_query import GroupQuery
from .group.leader import GroupEpoch, LeaderPublisher
from .kubernetes import ApiUnavailable, KubernetesApi, list_path, object_path
from .log import DeduplicatedLog
from .operations import Operations
from .publishing import StatusPublisher, write_probe_file
from .server.certificates import CertificateReload
from .server.parameters import ParameterSync
from .server.process import MySQLServer
from .server.replica_health import ApplyQueue, VolumeUsage
from .server.restart_backoff import RestartBackoff
from .server.service_settings import ServiceSettings
from .server.system_accounts import LOGIN_REFUSED, SystemAccounts

_LOOP_INTERVAL_SECONDS = 1.0  # seconds between two inspections
_SHORT_INTERVAL_SECONDS = 0.1
_STABLE_AFTER_SECONDS = 3.0  # seconds between two reads of the ConfigMap in a stable state
_SHUTDOWN_TIMEOUT_SECONDS = 60.0  # seconds for which another member with the same data may found the group
_STATUS_MEMORY_SECONDS = 15.0  # seconds for which a server that does not respond keeps its last state
_ALONE_AFTER_SECONDS = 10.0  # seconds without an online member in the group to join
_REFUSED_AFTER_SECONDS = 5.0  # seconds for which the server refuses the agent, before its start restores the account
_STOP_SECONDS = 20.0
_RETRY_DELAY_SECONDS = 3.0  # seconds before the next operation after a failure
_STATES: dict[str, MemberState] = {"ONLINE": "Online", "RECOVERING": "Recovering", "ERROR": "Failed"}
_STATE_DURING: dict[Operation, MemberState] = {"Clone": "Cloning", "Found": "Joining", "Join": "Joining"}
"""Reported state during an operation, unless more is known."""


@dataclass(frozen=True, kw_only=True)
class PodCluster:
    """Names of the pod and its cluster."""

    pod: rw_endpoints.PodIdentity
    name: str

    @property
    def pod_path(self) -> str:
        return object_path("pods", self.pod.namespace, self.pod.name)

    @property
    def pods_path(self) -> str:
        """Path of the list of the cluster's pods, including the own one."""
        return list_path("pods", self.pod.namespace, f"{group_config.CLUSTER_LABEL}={self.name}")

    @property
    def group_path(self) -> str:
        """Path of the ConfigMap that the members share."""
        return object_path("configmaps", self.pod.namespace, f"{self.name}-group")


@dataclass
class Since:
    """Duration of a state without a break."""

    _since: float | None = None

    def seconds(self, holds: bool) -> float:
        """Return the seconds since the state began. 0 if it does not hold."""
        now = time.monotonic()
        self._since = None if not holds else now if self._since is None else self._since
        return 0.0 if self._since is None else now - self._since


class Agent:
    """The agent of one member.

    Args:
        api: creates an API client for each of the two threads.
        thread: executor of lengthy operations, one at a time.
    """

    def __init__(
        self,
        cluster: PodCluster,
        server: MySQLServer,
        api: Callable[[], KubernetesApi],
        thread: Executor | None = None,
    ) -> None:
        self._stopping = False
        self._cluster, self._server, self._api = cluster, server, api()
        paths = server.paths
        self._local = server.local
        self._publisher = StatusPublisher(api(), cluster.pod_path, cluster.pod.uid, paths.report_file)
        self._group_epoch = GroupEpoch(paths.volume / "epoch")
        self._operations = Operations(
            server=server,
            local=self._local,
            parameters=ParameterSync(self._local, server.image_parameters()),
            certificates=CertificateReload(paths.tls, paths.peer, paths.trusted_ca),
            api=api(),
            publisher=self._publisher,
            path=cluster.group_path,
            group_epoch=self._group_epoch,
        )
        self._log = DeduplicatedLog()
        self._leader = LeaderPublisher(
            cluster.pod, cluster.name, paths, self._local, self._api, cluster.group_path, self._group_epoch, self._log
        )
        self._replica_health, self._volume_usage = ApplyQueue(), VolumeUsage({"data": paths.volume})
        self._thread = thread or ThreadPoolExecutor(1)
        self._running: Future[None] | None = None
        self._operation: Operation = "Wait"
        self._decision = MemberDecision("Wait", "it has just begun")
        self._attempted: frozenset[Operation] = frozenset()
        self._failures = FailureLog()
        self._retry_at = 0.0
        self._group_config = group_config.GroupConfig()
        self._read_at: tuple[object, float] | None = None
        self._last_status: tuple[group_status.ServerStatus, float] | None = None
        self._group_query = GroupQuery(time.monotonic)
        self._restart_backoff = RestartBackoff()
        self._errant_transactions = ErrantTransactions(paths.volume / "maybeErrant")
        self._alone_since, self._deserted_since, self._refused_since = Since(), Since(), Since()
        self._accounts = SystemAccounts(self._local, paths.accounts)
        self._settings = ServiceSettings(self._local, self._operations.parameters.image)
        address = write_check.ServerAddress(paths.socket, paths.peer)
        self._writes, self._is_primary = WriteCheck(lambda: write_check.Writer(address), self._write_state), False

    def run(self) -> None:
        """Run until stopped."""
        threading.Thread(
            target=self._writes.run, args=(lambda: self._is_primary, threading.Event()), name="writes", daemon=True
        ).start()
        while True:
            try:
                if self.tick():
                    return
            except Exception:
                # The server continues without the agent's loop. Ending the process would end the server.
                self._log.log("unexpected", traceback.format_exc())
            next_look = time.monotonic() + _LOOP_INTERVAL_SECONDS
            while time.monotonic() < next_look and not self._stopping:
                time.sleep(_SHORT_INTERVAL_SECONDS)
            time.sleep(_SHORT_INTERVAL_SECONDS)

    def stop(self) -> None:
        """Make the member leave the group and end.

        Called by a signal handler, at any point of the loop.
        """
        self._stopping = True

    def tick(self) -> bool:
        """Run one iteration. Return True if nothing is left to stop."""
        self._finish_operation()
        status = self._query_server()
        me = self._own_member(status)
        declared = self._with_yield(self._view(me, status))
        self._errant_transactions.update(declared)
        if self._running is None:
            self._decision = decide(declared)
        # During an operation the decision keeps its reason.
        decision = self._decision
        if decision.operation == "Wait" and me.state == "Online":
            self._failures.clear_all()
            self._restart_backoff = RestartBackoff()
        reason = self._reason_of(decision)
        self._log.log("decision", f"{decision.operation}: {reason}")
        self._publish(declared, reason, status)
        if self._running is not None:
            if declared.is_stopping and self._operation in ("Initialise", "Clone"):
                self._server.abort_initialisation()
            elif self._joins_alone(declared):
                # Otherwise it would contact the lost members for two minutes, and members that may found a group wait
                # for it.
                self._log.log("deserted", "nobody is left in the group that it joins: its server is started anew")
                self._server.stop(0)
        elif declared.is_stopping and me.state in ("Empty", "Stopped"):
            return True
        elif declared.is_stopping or time.monotonic() >= self._retry_at:
            self._start_operation(decision, declared)
            self._apply_changes(status, declared)
        self._leader.publish(status, self._group_config.state)
        return False

    def _with_yield(self, view: GroupView) -> GroupView:
        """Give other members with equal data some time to found the group."""
        return replace(view, yields_to_equals=self._alone_since.seconds(view.in_outage) < _SHUTDOWN_TIMEOUT_SECONDS)

    def _joins_alone(self, view: GroupView) -> bool:
        """Return True if the group to join has no online members.

        This must have lasted for a while.
        """
        joins = self._operation == "Join" and view.own.state == "Joining"
        return (
            self._deserted_since.seconds(joins and not view.uninspectable_reason and not view.online())
            >= _ALONE_AFTER_SECONDS
        )

    def _finish_operation(self) -> None:
        if self._running is None or not self._running.done():
            return
        if (failure := self._running.exception()) is not None:
            self._log.log("deed", f"{self._operation} failed: {failure}")
            self._retry_at = time.monotonic() + _RETRY_DELAY_SECONDS
            donor = self._decision.target if self._operation == "Clone" else None
            self._failures.record(self._operation, self._with_log_detail(failure), donor=donor)
            if self._operation == "Join":
                self._read_applier_errors()
                self._restart_without_accounts()
        else:
            self._failures.clear(self._operation)
            if self._operation == "Start":
                # The start has read them.
                self._failures.clear(CERTIFICATE_RELOAD)
                self._restart_backoff.record_start()
                self._accounts.record_start()
                self._retry_at = time.monotonic() + self._restart_backoff.delay_seconds
            elif self._operation == "Clone":
                self._errant_transactions.clear()
        if self._stopping:
            self._attempted = frozenset({*self._attempted, self._operation})
            self._retry_at = 0.0
        self._running, self._operation, self._read_at = None, "Wait", None

    def _restart_without_accounts(self) -> None:
        """Restart a server that cannot join because it lacks accounts.

        Its relay log has dropped them after its init file had created them.
        """
        with contextlib.suppress(group_status.ServerQueryFailed, OSError):
            if not self._accounts.are_usable():
                self._log.log("login", "the server lacks system accounts. It is restarted and recreates them")
                self._server.stop(_STOP_SECONDS)

    def _with_log_detail(self, failure: BaseException) -> str:
        """Add the plugin's last log message to a failure.

        The server's own message only refers to the log.
        """
        log_detail = self._server.last_error if self._operation in ("Found", "Join") else ""
        return f"{failure}; {log_detail}" if "group_replication reported" in log_detail else str(failure)

    def _query_server(self) -> group_status.ServerStatus | None:
        """Return the server's status.

        A server that is too busy to respond is still in its group.
        """
        if not self._server.is_running:
            self._local.close_kept_connection()
            self._last_status = None
            if self._operation != "Start":
                self._restart_backoff.record_exit(self._server)
            return None
        try:
            status = self._local.query_status()
            self._refused_since = Since()
        except group_status.ServerQueryFailed as error:
            if self._refused_since.seconds(error.code in LOGIN_REFUSED) >= _REFUSED_AFTER_SECONDS:
                self._refused_since, self._last_status = Since(), None
                self._log.log("login", f"the server refuses the agent, and is restarted with its accounts: {error}")
                self._server.stop(_STOP_SECONDS)
                return None
            # A server outside of a group may be in one by now, and reporting that it is not would be the worst error.
            known, at = self._last_status or (None, 0.0)
            if (
                known is not None
                and known.state in ("ONLINE", "RECOVERING")
                and time.monotonic() < at + _STATUS_MEMORY_SECONDS
            ):
                return known
            status = None
        if status is not None:
            self._restart_backoff.record_ready()
        elif self._restart_backoff.is_stalled(self._server):
            self._server.stop(0)
        self._last_status = None if status is None else (status, time.monotonic())
        self._replica_health.update(status)
        if status is not None and status.state in ("ERROR", "RECOVERING"):
            self._read_applier_errors(recovering=status.state == "RECOVERING")
        return status

    def _read_applier_errors(self, *, recovering: bool = False) -> None:
        """Record errors of the applier.

        A member that has joined may be unable to apply received transactions.
        """
        with contextlib.suppress(group_status.ServerQueryFailed):
            if errors := self._local.applier_errors():
                self._failures.record_applier_errors(errors)
            elif recovering:
                self._failures.clear_applier_errors()

    def _own_member(self, status: group_status.ServerStatus | None) -> GroupMember:
        state: MemberState
        if status is not None:
            state = _STATES.get(status.state, "Offline")
        elif self._server.is_running:
            state = "Starting"
        else:
            state = "Stopped" if self._server.has_data else "Empty"
        if state not in ("Recovering", "Online"):
            state = _STATE_DURING.get(self._operation, state)
        return GroupMember(
            instance=self._server.paths.instance,
            state=state,
            primary=status is not None and status.is_primary,
            uuid="" if status is None else status.uuid,
            address=self._server.paths.address,
            gtids=GtidSet() if status is None else status.executed,
            epoch=self._group_epoch.epoch,
        )

    def _view(self, me: GroupMember, status: group_status.ServerStatus | None) -> GroupView:
        """Read the state for a decision.

        The ConfigMap comes first, then one list of all pods.
        """
        majority = status is not None and status.has_majority
        failed = self._failures.failed_donors
        declared = GroupView(
            own=me, has_majority=majority, is_stopping=self._stopping, attempted=self._attempted, failed_donors=failed
        )
        seen = (me.state, me.primary, majority, status.view if status is not None else "", declared.is_stopping)
        is_stable = me.state == "Online" and majority and not declared.is_stopping
        if (
            is_stable
            and self._read_at is not None
            and self._read_at[0] == seen
            and time.monotonic() < self._read_at[1] + _STABLE_AFTER_SECONDS
        ):
            return replace(declared, store=replace(self._group_config.state, switchover=None))
        try:
            config_map, pods = self._api.get(self._cluster.group_path), None
            if config_map is not None and (agreed := group_config.read_group_config(config_map)).name:
                self._group_config = agreed
                if not is_stable or agreed.state.switchover is not None:
                    pods = self._api.get(self._cluster.pods_path)
            elif not is_stable:
                return replace(declared, uninspectable_reason=f"{self._cluster.group_path} is not there yet")
        except ApiUnavailable as error:
            return replace(declared, uninspectable_reason=str(error))
        finally:
            self._read_at = (seen, time.monotonic())
        others = [m for m in group_config.members((pods or {}).get("items") or ()) if m.instance != me.instance]
        superseded = status is not None and self._group_epoch.is_superseded(self._group_config.state, status.view)
        declared = replace(declared, store=self._group_config.state, others=others, is_superseded=superseded)
        if status is None or me.state != "Offline":
            return declared
        if (reported := self._group_query.evaluate(self._query_group(others), status)) is None:
            return declared
        answers = replace(
            declared,
            group_executed=reported.executed,
            purged_by_donor=reported.purged,
            all_answered=reported.all_answered,
            errant_gtids=reported.errant_gtids,
        )
        return replace(answers, quorum_lost=not reported.has_majority, is_listed=reported.is_listed)

    def _query_group(self, others: Sequence[GroupMember]) -> Sequence[group_status.ServerStatus]:
        """Return the statuses of the online members that respond."""
        statuses: list[group_status.ServerStatus] = []
        for member in (m for m in others if m.state == "Online"):
            try:
                statuses.append(self._server.query_member(member.address))
            except (group_status.ServerQueryFailed, ValueError, OSError) as error:
                self._log.log(f"instance {member.instance}", f"instance {member.instance} does not answer: {error}")
        return statuses

    def _reason_of(self, decision: MemberDecision) -> str:
        lag_reason = self._replica_health.lag_reason if decision.operation == "Wait" else ""
        return "; ".join(reason for reason in (decision.reason, lag_reason, self._failures.message) if reason)

    def _publish(self, view: GroupView, reason: str, status: group_status.ServerStatus | None) -> None:
        me, parameters = view.own, self._operations.parameters
        self._is_primary = me.state == "Online" and me.primary and view.has_majority and not view.is_stopping
        self._operations.additional_status.update(self._additional_status(view, status, parameters))
        ready = (
            me.state == "Online"
            and view.has_majority
            and not view.is_stopping
            and not self._replica_health.lag_reason
        )
        write_probe_file(self._server.paths.probe_file, ready=ready, reason=reason)
        try:
            self._publisher.publish(
                me, reason, majority=view.has_majority, additional=self._operations.additional_status
            )
        except ApiUnavailable as error:
            self._log.log("saying", f"it cannot be said: {error}")

    def _additional_status(
        self, view: GroupView, status: group_status.ServerStatus | None, parameters: ParameterSync
    ) -> dict[str, Any]:
        additional: dict[str, Any] = {
            "contract": CONTRACT,
            "errantGtids": self._errant_transactions.errant,
            "maybeErrant": self._errant_transactions.has_any,
            # Unknown data must not be reported as none, because a user would consent to their loss.
            "missingGtids": str(view.missing_gtids) if view.in_outage else None,
            "unseenInstances": view.unseen_instances if view.in_outage else None,
            "startError": self._restart_backoff.message,
            "diverged": self._failures.has_diverged,
            "failingOperation": self._failures.message,
            "applyQueue": self._replica_health.queued,
            "pendingRestart": dict(parameters.pending),
            "rejectedParameters": dict(parameters.rejected),
            "restoredParameters": parameters.restored,
            "storage": dict(self._volume_usage.update()),
            "writeError": self._writes.error if self._is_primary else "",
            "crashes": [*self._server.crashes.times],
        }
        return additional if status is None else {**additional, "version": status.version}

    def _start_operation(self, decision: MemberDecision, view: GroupView) -> None:
        operation = self._operations.operation(decision, view, self._group_config)
        if decision.operation == "Clone":
            # The copy replaces its data, whatever their problems.
            self._failures.has_diverged, self._restart_backoff = False, RestartBackoff()
        if operation is not None:
            self._operation, self._deserted_since = decision.operation, Since()
            self._running = self._thread.submit(operation)

    def _apply_changes(self, status: group_status.ServerStatus | None, view: GroupView) -> None:
        """Apply changed parameters and certificates to the running server."""
        if self._running is not None or status is None:
            return
        self._restore_access(status, view)
        try:
            parameters = self._operations.parameters
            parameters.apply(self._group_config.parameters)
            if parameters.restore() and parameters.restored is not None:
                self._log.log("restored", f"somebody else had set what is declared again: {parameters.restored}")
            if restored := self._settings.restore(status):
                parameters.record_restored(restored)
                self._log.log("restored", f"variables that refuse clients were reset: {parameters.restored}")
            for name, message in parameters.unchangeable.items():
                self._log.log(f"stays {name}", f"somebody else has set {name}, and it stays so: {message}")
        except group_status.ServerQueryFailed as error:
            self._log.log("adjusting", f"it cannot be adjusted: {error}")
            return
        certificates = self._operations.certificates
        try:
            if certificates.have_changed():
                certificates.load()
                self._local.execute("ALTER INSTANCE RELOAD TLS")
                self._failures.clear(CERTIFICATE_RELOAD)
                self._log.log("certificates", "the server shows and knows its new certificates")
        except (group_status.ServerQueryFailed, OSError, ValueError) as error:
            certificates.mark_unloaded()
            self._log.log("certificates", f"the server cannot be given its certificates: {error}")
            # An unresponsive server is reported elsewhere.
            if not isinstance(error, group_status.ServerQueryFailed) or error.has_responded:
                self._failures.record(CERTIFICATE_RELOAD, error)

    def _restore_access(self, status: group_status.ServerStatus, view: GroupView) -> None:
        """Restore the accounts on a serving primary. They reach the group."""
        if not (status.state == "ONLINE" and status.is_primary and status.has_majority):
            return
        try:
            is_complete = bool(view.others) and all(other.state == "Online" for other in view.others)
            restored = self._accounts.restore(is_group_complete=is_complete)
            if restored:
                self._log.log("accounts", "the system accounts of the cluster were restored")
            if restored is not None:
                self._failures.clear(ACCOUNTS_RESTORE)
        except (group_status.ServerQueryFailed, OSError) as error:
            self._log.log("accounts", f"the system accounts cannot be restored: {error}")
            self._failures.record(ACCOUNTS_RESTORE, error)

    def _write_state(self) -> str:
        """Return the state of the write that the server has not acknowledged."""
        with contextlib.suppress(group_status.ServerQueryFailed):
            return "; ".join(
                f"its state is: {state}" for (state,) in self._local.kept_rows(write_check.WAITS) if state
            )
        return ""
