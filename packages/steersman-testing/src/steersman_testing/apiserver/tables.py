"""Protocols for responses as ``Table``, which ``kubectl get`` requests.

The converter itself is in ``steersman_testing.apiserver.kubectl``, which is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from steersman.client.transport import HttpRequest
from steersman_testing.apiserver.extensions import load_kubectl
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import JsonObject


class TableEncoder(Protocol):
    """Converts objects of one kind to Tables."""

    def encode(
        self, items: Iterable[StoredObject], meta: JsonObject, now: datetime, *, headers: bool = True
    ) -> bytes:
        """Encode a Table as JSON.

        Args:
            items: the objects, one for each row.
            meta: the metadata of the list.
            now: the time up to which ages are counted.
            headers: whether the Table has column definitions. Watches send them with the first event only.
        """
        ...


class TableSupport(Protocol):
    """Functions of the package ``kubectl`` for Tables."""

    def table_converter(self, kind: ServedKind, request: HttpRequest) -> TableEncoder: ...


def table_encoder(kind: ServedKind, request: HttpRequest) -> TableEncoder:
    """Return the encoder for the Tables that ``request`` accepts.

    Raises:
        ApiError: 400, ``includeObject`` is unknown.
    """
    support: TableSupport = load_kubectl()
    return support.table_converter(kind, request)
