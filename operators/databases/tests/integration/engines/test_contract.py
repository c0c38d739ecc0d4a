"""Real servers keep the contract of the engines."""

from database_support.contracts.sql_engine import (
    TestDrift,
    TestFresh,
    TestHostileNames,
    TestOwnershipMarks,
    TestRefusals,
    TestUnreachable,
    canary,
    desired,
)

__all__ = [
    "TestDrift",
    "TestFresh",
    "TestHostileNames",
    "TestOwnershipMarks",
    "TestRefusals",
    "TestUnreachable",
    "canary",
    "desired",
]
