"""Knowledge that a schema does not contain, and limits of an exploration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

FieldValues = Mapping[str, Sequence[Any]]
"""Values by field path, such as ``{"spec.version": ["16", "17"]}``."""


class Hints(Struct, frozen=True, kw_only=True):
    """Knowledge of the author of an operator.

    Attributes:
        start: content of the first object in wire form, such as ``{"spec": {"image": "shop:1"}}``. Defaults to one
            generated from the schema.
        examples: values of a field that replace those from its schema. The first two are the most important.
        bad: values that the schema allows but the operator cannot use, such as an image that does not exist.
        exclude: paths that remain unchanged, including fields below them.
        rejection_reasons: reasons of conditions by which the operator intentionally rejects a change, although it
            would accept the value in a new object.
        conditions: condition types that show the health of the object. Empty: all types. A condition is unhealthy if
            its status differs from that on the first object.
        ignore: excluded from comparison: a kind (``PersistentVolumeClaim``), or a path in a kind
            (``Deployment.metadata.annotations``).
    """

    start: Mapping[str, Any] | None = None
    examples: FieldValues = {}
    bad: FieldValues = {}
    exclude: Sequence[str] = ()
    rejection_reasons: Sequence[str] = ()
    conditions: Sequence[str] = ()
    ignore: Sequence[str] = ()


class Budget(Struct, frozen=True, kw_only=True):
    """Limits of an exploration.

    Attributes:
        changes: maximum number of changes, without those of shrinking.
        seconds: real seconds after which no further change starts. None for no limit. The end then depends on the
            machine, the order of changes does not.
        failures: maximum number of distinct failures.
        changes_per_trial: number of changes to one object before the next one is created.
        shrink_runs: maximum number of runs to shrink one failure.
    """

    changes: int = 300
    seconds: float | None = None
    failures: int = 3
    changes_per_trial: int = 12
    shrink_runs: int = 60
