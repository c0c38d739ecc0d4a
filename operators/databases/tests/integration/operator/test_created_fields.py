"""Fields of a created cluster that its `Database` withdraws, on the real API server."""

from __future__ import annotations

import pytest

from database_support.created_clusters import assert_withdrawn_fields_are_removed
from steersman.observability.runtime import Runtime
from steersman_testing.envtest import Envtest


@pytest.mark.parametrize("applied_before", [False, True])
async def test_withdrawn_fields_of_created_cluster_are_removed(
    installed: Envtest, envtest_namespace: str, applied_before: bool
) -> None:
    async with installed.client() as live:
        await assert_withdrawn_fields_are_removed(live, Runtime(), envtest_namespace, applied_before=applied_before)
