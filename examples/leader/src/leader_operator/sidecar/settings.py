"""Settings of the sidecar, from its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from steersman import ObjectKey
from steersman.errors import ConfigurationError

KILL_MARGIN_SECONDS = 5
"""Seconds from SIGKILL to the end of the Lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """Settings of the sidecar.

    Attributes:
        service: the LeaderService.
        pod: name of this pod.
        pod_uid: UID of this pod.
        port: port of ``GET /leader`` on localhost.
        health_url: URL that responds with 2xx or 3xx while the application may lead. Empty: none.
        renew_deadline: seconds without a renewal after which the leader ends its term.
        retry_period: seconds between renewals.
        kill_margin: seconds from SIGKILL to the end of the Lease.
    """

    service: ObjectKey
    pod: str
    pod_uid: str
    port: int = 4040
    health_url: str = ""
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    kill_margin: float = KILL_MARGIN_SECONDS

    @property
    def identity(self) -> str:
        """Holder of the Lease. A pod that is created again has another one."""
        return f"{self.pod}_{self.pod_uid}"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> SidecarSettings:
        """Read the settings.

        Raises:
            ConfigurationError: a variable is missing or malformed.
        """
        settings = cls(
            service=ObjectKey(_required(environment, "POD_NAMESPACE"), _required(environment, "LEADER_SERVICE")),
            pod=_required(environment, "POD_NAME"),
            pod_uid=_required(environment, "POD_UID"),
            port=int(_number(environment, "LEADER_PORT", 4040)),
            health_url=environment.get("LEADER_HEALTH_URL", ""),
            renew_deadline=_number(environment, "LEADER_RENEW_DEADLINE_SECONDS", 10),
            retry_period=_number(environment, "LEADER_RETRY_PERIOD_SECONDS", 2),
        )
        if settings.renew_deadline <= 1.2 * settings.retry_period:
            raise ConfigurationError(
                f"LEADER_RENEW_DEADLINE_SECONDS={settings.renew_deadline:g} is too short for "
                f"LEADER_RETRY_PERIOD_SECONDS={settings.retry_period:g}: set it to several retry periods"
            )
        return settings


def pod_of(identity: str) -> tuple[str, str]:
    """Return name and UID of the pod that holds a Lease. Empty if it is none."""
    pod, _, uid = identity.partition("_")
    return pod, uid


def _required(environment: Mapping[str, str], name: str) -> str:
    if value := environment.get(name):
        return value
    raise ConfigurationError(f"the environment variable {name} is not set: see the README for the container")


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        number = float(text) if text else default
    except ValueError:
        number = -1.0
    if not 0 < number <= 65535:
        raise ConfigurationError(f"{name}={text!r} is not a number above 0: set it to a number such as {default:g}")
    return number
