"""Problems of monitors and rules, for their status and Events."""

from __future__ import annotations


class InvalidObject(ValueError):
    """The monitor or PrometheusRule cannot be part of the configuration.

    Args:
        field: path of the field below ``spec``, such as ``endpoints[0].interval``.
        problem: the problem, without the field.
        remedy: an imperative sentence.
    """

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"spec.{field} {problem}. {remedy}")
        self.field = field
