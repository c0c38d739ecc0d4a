"""The model keeps the contract of the engines."""

from database_support.engine_contract import (
    TestDrift,
    TestFresh,
    TestHostileNames,
    TestRefusals,
    TestUnreachable,
    canary,
    desired,
)

__all__ = ["TestDrift", "TestFresh", "TestHostileNames", "TestRefusals", "TestUnreachable", "canary", "desired"]
