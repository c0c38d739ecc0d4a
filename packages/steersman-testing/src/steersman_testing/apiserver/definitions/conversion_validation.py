"""Validation of ``spec.conversion``.

Source: ``validateCustomResourceConversion`` in ``pkg/apis/apiextensions/validation/validation.go`` and
``k8s.io/apiserver/pkg/util/webhook/validation.go``.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from steersman_cel.name_validation import dns1035_label_error, dns1123_subdomain_error
from steersman_testing.apiserver.failures import (
    InvalidFieldError,
    forbidden_field,
    invalid_value,
    required_value,
    unsupported_value,
)
from steersman_testing.apiserver.values import JsonObject, get_array, get_object

_URL_FORMAT = "; desired format: https://host[/path]"
_CONVERSION_PATH = "spec.conversion"
_CLIENT_CONFIG_PATH = f"{_CONVERSION_PATH}.webhookClientConfig"
_MAX_PORT = 65535


def conversion_errors(spec: JsonObject) -> Iterator[InvalidFieldError]:
    """Yield the errors of ``spec.conversion``, which has its defaults."""
    conversion = get_object(spec, "conversion")
    strategy = conversion.get("strategy", "")
    webhook = get_object(conversion, "webhook")
    client, review_versions = webhook.get("clientConfig"), get_array(webhook, "conversionReviewVersions")
    if strategy != "None" and spec.get("preserveUnknownFields"):
        yield invalid_value(
            f"{_CONVERSION_PATH}.strategy", strategy, "must be None if spec.preserveUnknownFields is true"
        )
    if not strategy:
        yield required_value(f"{_CONVERSION_PATH}.strategy")
    elif strategy not in ("None", "Webhook"):
        yield unsupported_value(f"{_CONVERSION_PATH}.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        yield from _client_config_errors(client)
        yield from _review_version_errors(review_versions)
        return
    text = "should not be set when strategy is not set to Webhook"
    if client is not None:
        yield forbidden_field(_CLIENT_CONFIG_PATH, text)
    if review_versions:
        yield forbidden_field(f"{_CONVERSION_PATH}.conversionReviewVersions", text)


def _client_config_errors(client_config: JsonObject | None) -> Iterator[InvalidFieldError]:
    if client_config is None:
        yield required_value(_CLIENT_CONFIG_PATH, "required when strategy is set to Webhook")
        return
    url, service = client_config.get("url"), client_config.get("service")
    if (url is None) == (service is None):
        yield required_value(_CLIENT_CONFIG_PATH, "exactly one of url or service is required")
    elif url is not None:
        yield from url_errors(url, f"{_CLIENT_CONFIG_PATH}.url")
    elif service is not None:
        yield from service_errors(
            service.get("name", ""), service.get("namespace", ""), service, f"{_CLIENT_CONFIG_PATH}.service"
        )


def url_errors(url: str, path: str) -> Iterator[InvalidFieldError]:
    """Yield the errors of the URL of a webhook."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield required_value(path, f"url must be a valid URL: {error}{_URL_FORMAT}")
        return
    if parts.scheme != "https":
        yield invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORMAT}")
    user, _, host = parts.netloc.rpartition("@")
    if not host:
        yield invalid_value(path, host, f"host must be specified{_URL_FORMAT}")
    for found, text in (
        (user, "user information is not permitted in the URL"),
        (parts.fragment, "fragments are not permitted in the URL"),
        (parts.query, "query parameters are not permitted in the URL"),
    ):
        if found:
            yield invalid_value(path, found, text)


def service_errors(namespace: str, name: str, service: JsonObject, field_path: str) -> Iterator[InvalidFieldError]:
    """Yield the errors of the Service of a webhook.

    The real server swaps name and namespace, and so do the callers.
    """
    if not name:
        yield required_value(f"{field_path}.name")
    if not namespace:
        yield required_value(f"{field_path}.namespace")
    port = service.get("port", 443)
    if not 0 < port <= _MAX_PORT:
        text = f"port is not valid: must be between 1 and {_MAX_PORT}, inclusive"
        yield invalid_value(f"{field_path}.port", port, text)
    path: str = service.get("path", "")
    if path in ("", "/"):
        return
    field_path = f"{field_path}.path"
    if path == "//":
        yield invalid_value(field_path, path, "segment[0] may not be empty")
        return
    if not path.startswith("/"):
        yield invalid_value(field_path, path, "must start with a '/'")
    for position, segment in enumerate(path[1:].removesuffix("/").split("/")):
        problem = dns1123_subdomain_error(segment) if segment else "may not be empty"
        if problem:
            separator = ":" if segment else ""
            yield invalid_value(field_path, path, f"segment[{position}]{separator} {problem}")


def _review_version_errors(versions: list[str]) -> Iterator[InvalidFieldError]:
    path = f"{_CONVERSION_PATH}.conversionReviewVersions"
    if not versions:
        yield required_value(path)
        return
    for position, version in enumerate(versions):
        if version in versions[:position]:
            yield invalid_value(f"{path}[{position}]", version, "duplicate version")
        elif problem := dns1035_label_error(version):
            yield invalid_value(f"{path}[{position}]", version, problem)
    if not {"v1", "v1beta1"} & set(versions):
        yield invalid_value(path, versions, "must include at least one of v1, v1beta1")
