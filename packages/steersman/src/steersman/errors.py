"""All exceptions of Steersman, as one tree::

    SteersmanError
    ├── ConfigurationError        kubeconfig, in-cluster files or options: says which file and field
    │   └── CredentialsFailed     a token file or exec plugin returned no credential
    ├── ConnectionFailed          no response from the API server (refused, reset, timed out)
    ├── NoKindMatch               the API server does not serve the kind: is its CRD installed?
    ├── CacheNotSynced            an informer did not finish its first list in time
    ├── NameConflict              another object has the name that an owner wants to use
    │   ├── AlreadyOwned          it has another controller
    │   └── NotOwned              it has no controller
    ├── LeadershipLost            another replica may be the leader: writes are rejected and the process ends
    ├── TerminalError             raised by a reconciler: do not retry until the object changes
    ├── SchemaError               a type has no structural schema (defined in ``steersman_manifests.crd``)
    ├── QueueShutDown             the queue is shut down (defined in ``steersman.controller``)
    ├── Denied                    raised by a webhook handler to reject a request (defined in ``steersman.webhook``)
    ├── ConversionFailed          an object cannot be converted to another version (defined in ``steersman.webhook``)
    ├── ReconcileTimeout          a reconcile took longer than allowed (defined in ``steersman.controller``)
    └── ApiError                  the API server responded with an error
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
    """Base class of all exceptions.

    Functions also raise ``TypeError`` and ``ValueError`` for invalid arguments, and ``msgspec.ValidationError`` for
    objects that do not match their type.
    """


def error_text(error: BaseException) -> str:
    """Return the message of ``error``, or its class without one.

    It never raises, unlike ``str``: exceptions of other libraries may have a broken ``__str__``.
    """
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


class ConfigurationError(SteersmanError):
    """A setting is missing or malformed. The message names the file and the field."""


class CredentialsFailed(ConfigurationError):
    """A token file or exec plugin returned no credential.

    No request was sent. A later request may succeed.
    """


class ConnectionFailed(SteersmanError):
    """No complete response arrived from the API server.

    Attributes:
        sent: True if the server may have received the request, and a write may have been applied. False if it
            certainly did not receive the request, for example because the connection was refused.
    """

    def __init__(self, message: str = "", *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class NoKindMatch(SteersmanError):
    """The API server does not serve the kind or resource. The message names it."""


class CacheNotSynced(SteersmanError):
    """An informer did not complete its first list in time. The message names the kind."""


class NameConflict(SteersmanError):
    """An object that the owner does not control has the name. Nothing was written.

    The message names both objects. Retries succeed once the object is deleted.
    """


class AlreadyOwned(NameConflict):
    """The object has another controller."""


class NotOwned(NameConflict):
    """The object exists and has no controller. ``adopt=True`` takes it over."""


class LeadershipLost(SteersmanError):
    """This process does not hold the lease. The request was not sent."""


class TerminalError(SteersmanError):
    """An error of a reconciler that a retry cannot correct.

    The reconciler raises it. The object is not requeued until it changes.
    """


class StatusCause(msgspec.Struct, frozen=True):
    """One cause of a failed request.

    Attributes:
        field: path of the field in the sent object, such as ``spec.replicas``; may be empty.
        message: text for users.
        reason: machine-readable, such as ``FieldValueInvalid`` or ``FieldManagerConflict``.
    """

    field: str = ""
    message: str = ""
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """``status.details`` of a failed request. ``retry_after_seconds`` defaults to 0."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int = 0


class ApiStatus(msgspec.Struct, frozen=True):
    """``metav1.Status`` of a failed request."""

    message: str = ""
    reason: str = ""
    code: int = 0
    status: str = "Failure"
    details: StatusDetails | None = None


class ApiError(SteersmanError):
    """The API server refused a request. ``status`` is the response and ``str()`` its message.

    Attributes:
        retry_after: seconds after which the server allows another attempt, or None.
        uncertain: True if an earlier attempt of the same request may have been applied. See ``HttpResponse``.
    """

    def __init__(self, status: ApiStatus, retry_after: float | None = None) -> None:
        super().__init__(status.message or status.reason or f"HTTP {status.code}")
        self.status = status
        retry_after_seconds = status.details.retry_after_seconds if status.details else 0
        self.retry_after: float | None = retry_after if retry_after is not None else (retry_after_seconds or None)
        self.uncertain = False

    def __reduce__(self) -> tuple[type[ApiError], tuple[ApiStatus, float | None], dict[str, bool]]:
        # The default passes the message to ``__init__``, which breaks pools of processes.
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
        """The causes by field. Empty if the server reports none."""
        return (self.status.details.causes or ()) if self.status.details else ()


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the credentials are missing or rejected."""


class Forbidden(ApiError):
    """403: RBAC or an admission plugin denies the request. The message names the verb and the resource."""

    @property
    def namespace_terminating(self) -> bool:
        """Return True if the namespace is being deleted, which rejects new objects."""
        return any(cause.reason == "NamespaceTerminating" for cause in self.causes)


class NotFound(ApiError):
    """404: the object does not exist, or its CRD is not installed."""


class MethodNotAllowed(ApiError):
    """405: the resource does not support this verb."""


class NotAcceptable(ApiError):
    """406: the server supports none of the requested media types."""


class FieldConflict(NamedTuple):
    """A field of a server-side apply that another manager owns.

    Attributes:
        manager: the field manager that owns the field.
        field: path of the field, such as ``.spec.replicas`` or ``.spec.containers[name="app"].image``.
    """

    manager: str
    field: str


class Conflict(ApiError):
    """409: the object has changed, or another manager owns an applied field."""

    @property
    def conflicts(self) -> tuple[FieldConflict, ...]:
        """The fields that other managers own. Empty for other conflicts."""
        ownership_causes = (c for c in self.causes if c.reason == "FieldManagerConflict")
        return tuple(FieldConflict(_parse_manager_name(c.message), c.field) for c in ownership_causes)


class AlreadyExists(Conflict):
    """409: an object with this name exists."""


class Expired(ApiError):
    """410: the resourceVersion or the continue token is too old. List again."""


class PayloadTooLarge(ApiError):
    """413: the object is larger than the API server accepts."""


class UnsupportedMediaType(ApiError):
    """415: the resource does not support this type of patch."""


class Invalid(ApiError):
    """422: the object violates its schema, a CEL rule or another validation.

    ``causes`` has the fields.
    """


class TooManyRequests(ApiError):
    """429: priority and fairness throttled the request. See also ``EvictionBlocked``."""


class EvictionBlocked(TooManyRequests):
    """429: a PodDisruptionBudget does not allow the eviction of this pod now."""


class ServerError(ApiError):
    """5xx: the server failed."""


class InternalError(ServerError):
    """500: the server or a webhook that it called failed."""


class StorageReadError(InternalError):
    """500: an object in etcd cannot be decrypted or decoded. Deleting it needs force (KEP-3926)."""


class ServiceUnavailable(ServerError):
    """503: the server is starting, stopping or overloaded."""


class ServerTimeout(ServerError):
    """504: the server reached its time limit. The request may have been applied."""


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
    """Return the exception for a Status, by its reason or code.

    Args:
        status: the response of the API server.
        retry_after: seconds, from the ``Retry-After`` header.
    """
    fallback = ServerError if status.code >= 500 else ApiError
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, fallback)
    error = kind(status, retry_after)
    if kind is TooManyRequests and any(cause.reason == "DisruptionBudget" for cause in error.causes):
        return EvictionBlocked(status, retry_after)
    return error


def _parse_manager_name(message: str) -> str:
    """Return the manager that a conflict message names, or an empty string.

    An example is ``conflict with "kubectl" using v1``. Go quotes the name like JSON.
    """
    found = re.match(r'conflict with ("(?:[^"\\]|\\.)*")', message)
    if found is None:
        return ""
    try:
        return msgspec.json.decode(found[1], type=str)
    except msgspec.DecodeError:
        # Go escapes unprintable characters in forms that JSON lacks.
        return found[1][1:-1]
