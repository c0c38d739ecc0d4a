"""What a schema does not say about its fields, and how long to explore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

FieldValues = Mapping[str, Sequence[Any]]
"""Values by the path of a field, such as ``{"spec.version": ["16", "17"]}``."""


class Hints(Struct, frozen=True, kw_only=True):
    """What the author of an operator knows about its kind.

    Attributes:
        start: the first object's content in wire form, such as ``{"spec": {"image": "shop:1"}}``; None for one made
            from the schema.
        examples: values of a field, in place of those that its schema suggests. The first two matter most.
        bad: values that the schema allows and the operator cannot work with, such as an image that does not exist.
        exclude: paths that are not changed, with all below them.
        rejection_reasons: condition reasons with which the operator rejects a change on purpose, although it accepts a
            new object of the same spec.
        conditions: the types of conditions that tell whether all is well; empty: all types. A condition is a sign
            of an error when its status is not what it was on the first object.
        ignore: what is not compared: a kind (``PersistentVolumeClaim``), or a path in one
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
    """When to stop.

    Attributes:
        changes: how many changes at most, those of shrinking a failure not counted.
        seconds: real seconds, after which no further change begins; None for any time. Where it stops then depends
            on the machine; what it does until then does not.
        failures: how many different failures.
        changes_per_trial: changes in a row on one object, until the next one begins.
        shrink_runs: runs to make one failure smaller.
    """

    changes: int = 300
    seconds: float | None = None
    failures: int = 3
    changes_per_trial: int = 12
    shrink_runs: int = 60
