"""One real API server a test process."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from steersman.testing.envtest import Envtest


@pytest.fixture(scope="session")
def envtest() -> Generator[Envtest]:
    with Envtest.start() as environment:
        yield environment
