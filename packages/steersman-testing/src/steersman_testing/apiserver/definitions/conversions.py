"""Whether a definition says how its versions convert.

Source: ``validateCustomResourceConversion`` in ``pkg/apis/apiextensions/validation/validation.go`` and
``k8s.io/apiserver/pkg/util/webhook/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from steersman_cel.names import label_problem, subdomain_problem
from steersman_testing.apiserver.definitions.schemas import not_supported
from steersman_testing.apiserver.failures import FieldError, forbidden_field, invalid_value, required
from steersman_testing.apiserver.values import JsonObject, list_at, map_at

_FORM = "; desired format: https://host[/path]"
_PLACE = "spec.conversion"
_CLIENT = f"{_PLACE}.webhookClientConfig"
_HIGHEST_PORT = 65535


def conversion_errors(spec: JsonObject) -> Iterator[FieldError]:
    """What is wrong with ``spec.conversion``, which is filled in where it was not sent."""
    conversion = map_at(spec, "conversion")
    strategy = conversion.get("strategy", "")
    webhook = map_at(conversion, "webhook")
    client, reviewed = webhook.get("clientConfig"), list_at(webhook, "conversionReviewVersions")
    if strategy != "None" and spec.get("preserveUnknownFields"):
        yield invalid_value(f"{_PLACE}.strategy", strategy, "must be None if spec.preserveUnknownFields is true")
    if not strategy:
        yield required(f"{_PLACE}.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported(f"{_PLACE}.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        yield from _client(client)
        yield from _review_versions(reviewed)
        return
    text = "should not be set when strategy is not set to Webhook"
    if client is not None:
        yield forbidden_field(_CLIENT, text)
    if reviewed:
        yield forbidden_field(f"{_PLACE}.conversionReviewVersions", text)


def _client(client: JsonObject | None) -> Iterator[FieldError]:
    if client is None:
        yield required(_CLIENT, "required when strategy is set to Webhook")
        return
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        yield required(_CLIENT, "exactly one of url or service is required")
    elif url is not None:
        yield from url_errors(url, f"{_CLIENT}.url")
    elif service is not None:
        yield from service_errors(
            service.get("name", ""), service.get("namespace", ""), service, f"{_CLIENT}.service"
        )


def url_errors(url: str, place: str) -> Iterator[FieldError]:
    """Why a webhook cannot be called at ``url``."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required(place, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid_value(place, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        yield invalid_value(place, host, f"host must be specified{_FORM}")
    for found, text in (
        (user, "user information is not permitted in the URL"),
        (parts.fragment, "fragments are not permitted in the URL"),
        (parts.query, "query parameters are not permitted in the URL"),
    ):
        if found:
            yield invalid_value(place, found, text)


def service_errors(namespace: str, name: str, service: JsonObject, place: str) -> Iterator[FieldError]:
    """Why a webhook cannot be called at ``service``.

    The real server takes the name for the namespace and the other way round, so callers do here.
    """
    if not name:
        yield required(f"{place}.name")
    if not namespace:
        yield required(f"{place}.namespace")
    port = service.get("port", 443)
    if not 0 < port <= _HIGHEST_PORT:
        text = f"port is not valid: must be between 1 and {_HIGHEST_PORT}, inclusive"
        yield invalid_value(f"{place}.port", port, text)
    path: str = service.get("path", "")
    if path in ("", "/"):
        return
    place = f"{place}.path"
    if path == "//":
        yield invalid_value(place, path, "segment[0] may not be empty")
        return
    if not path.startswith("/"):
        yield invalid_value(place, path, "must start with a '/'")
    for position, step in enumerate(path[1:].removesuffix("/").split("/")):
        problem = subdomain_problem(step) if step else "may not be empty"
        if problem:
            separator = ":" if step else ""
            yield invalid_value(place, path, f"segment[{position}]{separator} {problem}")


def _review_versions(versions: list[str]) -> Iterator[FieldError]:
    place = f"{_PLACE}.conversionReviewVersions"
    if not versions:
        yield required(place)
        return
    for position, version in enumerate(versions):
        if version in versions[:position]:
            yield invalid_value(f"{place}[{position}]", version, "duplicate version")
        elif problem := label_problem(version):
            yield invalid_value(f"{place}[{position}]", version, problem)
    if not {"v1", "v1beta1"} & set(versions):
        yield invalid_value(place, versions, "must include at least one of v1, v1beta1")
