"""Admission check of candidate documents by an in-memory API server."""

from __future__ import annotations

from typing import Any

import msgspec

from steersman.client import FieldValidation, HttpRequest
from steersman.errors import ApiError, ApiStatus, error_from_status
from steersman_testing.apiserver import InMemoryApiServer
from steersman_testing.apiserver.values import JsonObject
from steersman_testing.transitions.kind_under_test import KindUnderTest

_NAMESPACE = "default"


class AdmissionChecker:
    """Checks documents against schema and rules by dry run.

    Args:
        target: the kind.
    """

    def __init__(self, target: KindUnderTest) -> None:
        self._target = target
        self._server = InMemoryApiServer()
        self._server.load(target.definition)
        self._current: tuple[JsonObject, JsonObject] | None = None

    def update(self, current: JsonObject, document: JsonObject, validation: FieldValidation = "Strict") -> JsonObject:
        """Return the content after ``current`` was replaced by ``document``.

        Raises:
            ApiError: if the update is rejected.
        """
        stored = self._ensure_current(current)
        body = self._target.manifest(document, _NAMESPACE)
        body["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
        query = {"dryRun": "All", "fieldValidation": validation}
        return self._target.desired_content(self._send("PUT", self._path(named=True), body, query))

    def rejection(self, current: JsonObject | None, document: JsonObject) -> ApiError | None:
        """Return the error with which ``document`` is rejected, or None.

        Args:
            current: content of the existing object. None checks the creation of a new object.
            document: desired content.
        """
        try:
            if current is None:
                self._create(document, dry_run=True)
            else:
                self.update(current, document)
        except ApiError as error:
            return error
        return None

    def _ensure_current(self, document: JsonObject) -> JsonObject:
        if self._current is None or self._current[0] != document:
            if self._current is not None:
                self._send("DELETE", self._path(named=True), {}, {})
                self._current = None
            self._current = (document, self._create(document, dry_run=False))
        return self._current[1]

    def _create(self, document: JsonObject, *, dry_run: bool) -> JsonObject:
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        body = self._target.manifest(document, _NAMESPACE)
        if dry_run and self._current is not None:
            # The name exists already. Rules may refer to the name, so it must not change.
            self._send("DELETE", self._path(named=True), {}, {})
            self._current = None
        return self._send("POST", self._path(named=False), body, query)

    def _path(self, *, named: bool) -> str:
        key = self._target.key(_NAMESPACE)
        if named:
            return self._target.resource.path(key)
        return self._target.resource.path(None, namespace=key.namespace)

    def _send(self, method: str, path: str, body: JsonObject, query: dict[str, str]) -> JsonObject:
        request = HttpRequest(method=method, path=path, query=query, body=msgspec.json.encode(body))
        response = self._server.handle(request)
        if response.status >= 400:
            raise error_from_status(msgspec.json.decode(response.body, type=ApiStatus))
        decoded: Any = msgspec.json.decode(response.body)
        return decoded
