"""Strings that YAML readers take for another type."""

from __future__ import annotations

TYPED_BY_READERS = (
    *("y", "Y", "n", "N", "yes", "No", "on", "OFF", "true", "False", "null", "~"),
    *("1", "-1", "+1", "1_000", "0b11", "010", "0o644", "0x1F", "08", "09_1"),
    *("1.5", ".5", "1.", "1e3", "1E3", ".5e3", "1_0.5", "-1e-3", ".inf", "-.Inf", ".nan", "2026-01-01"),
)
