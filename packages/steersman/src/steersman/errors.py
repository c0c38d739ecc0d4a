"""Every exception of Steersman's own, as one tree.

    SteersmanError
    ├── ConfigurationError        kubeconfig, in-cluster files or options: says which file and field
    │   └── CredentialsFailed     a token file or exec plugin gave no credential
    ├── ConnectionFailed          no answer from the API server (refused, reset, timed out)
    ├── NoKindMatch               discovery knows no such kind: is its CRD installed?
    ├── CacheNotSynced            an informer did not finish its first list in time
    ├── LeadershipLost            another replica may lead by now: nothing more is written, and the process ends
    ├── TerminalError             raised by a reconciler: do not retry until the object changes
    ├── SchemaError               a type has no structural schema (defined in ``steersman.crd``)
    ├── QueueShutDown             there will be no more keys (defined in ``steersman.controller``)
    ├── Denied                    raised by a webhook's handler that refuses (defined in ``steersman.webhook``)
    ├── ConversionFailed          no way to another version of a kind (defined in ``steersman.webhook``)
    ├── ReconcileTimeout          a reconcile took longer than allowed (defined in ``steersman.controller``)
    └── ApiError                  the API server answered with a Status
        ├── BadRequest            400
        ├── Unauthorized          401
        ├── Forbidden             403
        ├── NotFound              404
        ├── MethodNotAllowed      405
        ├── NotAcceptable         406
        ├── Conflict              409  the object has changed, or another manager owns the field
        │   └── AlreadyExists     409  reason AlreadyExists
        ├── Expired               410  reasons Expired and Gone: list again
        ├── PayloadTooLarge       413
        ├── UnsupportedMediaType  415
        ├── Invalid               422  validation failed: see ``causes``
        ├── TooManyRequests       429
        │   └── EvictionBlocked   429  a PodDisruptionBudget allows no eviction now
        └── ServerError           5xx
            ├── InternalError     500
            │   └── StorageReadError  500  an object in etcd cannot be decrypted or decoded
            ├── ServiceUnavailable 503
            └── ServerTimeout     504  reasons ServerTimeout and Timeout

Source: "API Conventions", section "Response Status Kind", and ``metav1.StatusReason``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec


class SteersmanError(Exception):
    """The root of the tree.

    Beside it there are ``TypeError`` and ``ValueError`` for arguments that make no sense, and
    ``msgspec.ValidationError`` for objects that do not fit their type.
    """


class ConfigurationError(SteersmanError):
    """Something the user configured is missing or malformed; the message names the file and the field."""


class CredentialsFailed(ConfigurationError):
    """A token file or exec plugin gave no credential; nothing was sent. It may give one later."""


class ConnectionFailed(SteersmanError):
    """The API server gave no (complete) answer.

    Attributes:
        sent: whether anything of the request may have reached the server, so that it is unknown whether a write was
            carried out. False only where it is certain that it was not, as when the connection was refused.
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class NoKindMatch(SteersmanError):
    """The API server serves no such kind or resource; the message says what was asked for and where to look."""


class CacheNotSynced(SteersmanError):
    """An informer did not finish its first list within the time limit; the message names the kind."""


class LeadershipLost(SteersmanError):
    """This process does not, or no longer, hold the lease; a request that it stopped was not sent."""


class TerminalError(SteersmanError):
    """Raised by a reconciler for what no retry can mend: the object is not requeued until it changes."""


class StatusCause(msgspec.Struct, frozen=True):
    """One reason among several of a failed request.

    Attributes:
        field: path of the field in the sent object, such as ``spec.replicas``; may be empty.
        message: text for people.
        reason: machine-readable, such as ``FieldValueInvalid`` or ``FieldManagerConflict``.
    """

    field: str = ""
    message: str = ""
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """``status.details`` of a failed request; ``retry_after_seconds`` is 0 when the server gave no advice."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, frozen=True):
    """The API server's own account of a failed request (``metav1.Status``)."""

    message: str = ""
    reason: str = ""
    code: int = 0
    status: str = "Failure"
    details: StatusDetails | None = None


class ApiError(SteersmanError):
    """The API server refused a request; ``status`` holds its answer, ``str()`` its message.

    Attributes:
        retry_after: seconds after which the server asks to try again; None where it does not.
        uncertain: an earlier try of the same request may have been carried out: see ``HttpResponse``.
    """

    def __init__(self, status: ApiStatus, retry_after: float | None = None) -> None:
        super().__init__(status.message or status.reason or f"HTTP {status.code}")
        self.status = status
        retry_after_seconds = status.details.retry_after_seconds if status.details else 0
        self.retry_after: float | None = retry_after if retry_after is not None else (retry_after_seconds or None)
        self.uncertain = False

    def __reduce__(self) -> tuple[type[ApiError], tuple[ApiStatus, float | None], dict[str, bool]]:
        # An exception's own way would hand its text to ``__init__``, and so end a pool of processes.
        return type(self), (self.status, self.retry_after), {"uncertain": self.uncertain}

    @property
    def code(self) -> int:
        """The HTTP status code."""
        return self.status.code

    @property
    def reason(self) -> str:
        """The machine-readable reason, such as ``NotFound``."""
        return self.status.reason

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """What exactly was wrong, field by field; empty when the server did not say."""
        return (self.status.details.causes or ()) if self.status.details else ()


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the credentials are missing or not accepted."""


class Forbidden(ApiError):
    """403: authenticated, yet RBAC or an admission plugin refuses; the message names the verb and resource."""

    @property
    def namespace_terminating(self) -> bool:
        """Whether the only reason is that the namespace is being deleted, so that nothing new may be made in it."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)


class NotFound(ApiError):
    """404: no such object, or no such kind (its CRD is not installed)."""


class MethodNotAllowed(ApiError):
    """405: the resource does not support this verb."""


class NotAcceptable(ApiError):
    """406: the server has none of the media types that were asked for."""


class FieldConflict(NamedTuple):
    """A field that a server-side apply would have taken from its owner.

    Attributes:
        manager: who owns it.
        field: its path, such as ``.spec.replicas`` or ``.spec.containers[name="app"].image``.
    """

    manager: str
    field: str


class Conflict(ApiError):
    """409: the object changed since it was read, or (server-side apply) another manager owns a field."""

    @property
    def conflicts(self) -> tuple[FieldConflict, ...]:
        """Which fields are owned by whom; empty where it is not about the ownership of fields."""
        ownership_causes = (c for c in self.causes if c.reason == "FieldManagerConflict")
        return tuple(FieldConflict(_parse_manager_name(c.message), c.field) for c in ownership_causes)


class AlreadyExists(Conflict):
    """409: an object of that name exists."""


class Expired(ApiError):
    """410: the resource version is too old for a watch or a continue token; list again."""


class PayloadTooLarge(ApiError):
    """413: the object is larger than the API server accepts."""


class UnsupportedMediaType(ApiError):
    """415: the resource does not support this kind of patch."""


class Invalid(ApiError):
    """422: schema, CEL rule or validation refused the object; ``causes`` names the fields."""


class TooManyRequests(ApiError):
    """429: throttled (priority and fairness), or see ``EvictionBlocked``."""


class EvictionBlocked(TooManyRequests):
    """429: a PodDisruptionBudget allows no eviction of this pod now; it may a little later."""


class ServerError(ApiError):
    """5xx: the fault is on the server's side."""


class InternalError(ServerError):
    """500: something broke inside the server, or in a webhook that it asked."""


class StorageReadError(InternalError):
    """500: an object in etcd cannot be decrypted or decoded; deleting it needs force (KEP-3926)."""


class ServiceUnavailable(ServerError):
    """503: the server is starting, stopping or overloaded."""


class ServerTimeout(ServerError):
    """504: the server gave up in time; the request may have been carried out."""


_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "NotAcceptable": NotAcceptable,
    "Conflict": Conflict,
    "AlreadyExists": AlreadyExists,
    "Expired": Expired,
    "Gone": Expired,
    "RequestEntityTooLarge": PayloadTooLarge,
    "UnsupportedMediaType": UnsupportedMediaType,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": InternalError,
    "StorageReadError": StorageReadError,
    "ServiceUnavailable": ServiceUnavailable,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
}

_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    406: NotAcceptable,
    409: Conflict,
    410: Expired,
    413: PayloadTooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
    500: InternalError,
    503: ServiceUnavailable,
    504: ServerTimeout,
}


def error_from_status(status: ApiStatus, retry_after: float | None = None) -> ApiError:
    """The exception for a Status: chosen by reason, or by code where the reason is unknown.

    Args:
        status: the API server's answer.
        retry_after: seconds, from the ``Retry-After`` header.
    """
    fallback = ServerError if status.code >= 500 else ApiError
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, fallback)
    error = kind(status, retry_after)
    if kind is TooManyRequests and any(cause.reason == "DisruptionBudget" for cause in error.causes):
        return EvictionBlocked(status, retry_after)
    return error


def _parse_manager_name(message: str) -> str:
    """``a "b"`` in ``conflict with "a \"b\"" using v1``: there is no field for it, and Go quotes it as JSON does."""
    found = re.match(r'conflict with ("(?:[^"\\]|\\.)*")', message)
    if found is None:
        return ""
    try:
        return msgspec.json.decode(found[1], type=str)
    except msgspec.DecodeError:
        # Go writes unprintable characters in ways that JSON does not know.
        return found[1][1:-1]
