"""Log lines of pods, set by tests and served by ``pods/log``.

For a scheduled pod the response is 501 Not Implemented, unless the test sets the lines in ``pod_logs``.

Source: ``pkg/registry/core/pod/rest/log.go``, ``ValidatePodLogOptions`` in ``pkg/apis/core/validation`` of Kubernetes
1.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from steersman.meta import ApiResource, ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.failures import InvalidFieldError, forbidden_field, invalid_value
from steersman_testing.apiserver.go_values import UnmarshalTypeError, canonical_time
from steersman_testing.apiserver.requests.parameters import int_parameter
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import get_array, get_object

_LOG_OPTIONS = ApiResource("", "v1", "PodLogOptions", "")
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_POSITIVE_OPTIONS = ("limitBytes", "sinceSeconds")


@dataclass(frozen=True, slots=True)
class PodLogs:
    """Logs of pods.

    Attributes:
        lines: log lines by the key of the pod.
    """

    lines: dict[ObjectKey, Sequence[str]] = field(default_factory=dict[ObjectKey, Sequence[str]])

    def select_lines(self, route: Route, pod: StoredObject, query: Mapping[str, str]) -> list[str] | None:
        """Return the lines of ``pod`` that ``query`` selects.

        None if the pod has no node and therefore no log.

        Raises:
            ApiError: 400 or 422, an option is invalid; 501, the pod has a node and the test has written no log.
        """
        _check_options(route.name, query)
        _check_container(route.name, pod, query.get("container", ""))
        lines = self.lines.get(route.key)
        if lines is None:
            if get_object(pod.object, "spec").get("nodeName"):
                raise failures.not_implemented("the log of a scheduled pod, unless the test sets it in pod_logs")
            return None
        tail_lines = int_parameter(query, "tailLines")
        return list(lines) if tail_lines is None else list(lines)[len(lines) - min(tail_lines, len(lines)) :]


def _check_options(name: str, query: Mapping[str, str]) -> None:
    errors = list(_option_errors(query))
    if errors:
        raise failures.invalid(_LOG_OPTIONS, name, errors)


def _option_errors(query: Mapping[str, str]) -> Iterator[InvalidFieldError]:
    if "sinceTime" in query:
        try:
            canonical_time(query["sinceTime"])
        except UnmarshalTypeError as error:
            raise failures.bad_request(str(error)) from None
    found = {n: int_parameter(query, n) for n in ("tailLines", *_POSITIVE_OPTIONS)}
    if (tail_lines := found["tailLines"]) is not None and tail_lines < 0:
        yield invalid_value("tailLines", tail_lines, "must be greater than or equal to 0")
    for field_name in _POSITIVE_OPTIONS:
        if (value := found[field_name]) is not None and value < 1:
            yield invalid_value(field_name, value, "must be greater than 0")
    if "sinceTime" in query and "sinceSeconds" in query:
        yield forbidden_field("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified")
    if "stream" in query:
        yield forbidden_field("stream", "may not be specified")


def _check_container(name: str, pod: StoredObject, container: str) -> None:
    spec = get_object(pod.object, "spec")
    names: list[str] = [c["name"] for group in _CONTAINERS for c in get_array(spec, group)]
    if container and container not in names:
        raise failures.bad_request(f"container {container} is not valid for pod {name}")
    if not container and len(names) > 1:
        choice = " ".join(names)
        text = f"a container name must be specified for pod {name}, choose one of: [{choice}]"
        raise failures.bad_request(text)
