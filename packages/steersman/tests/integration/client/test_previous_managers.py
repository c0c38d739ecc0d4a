"""Fields of a previous field manager, on the real API server."""

from __future__ import annotations

import pytest

from framework_support.previous_manager_cases import (
    RenamedOperator,
    check_applied_fields,
    check_other_value,
    check_status,
    check_updated_fields,
)
from framework_support.widget import Widget
from steersman.api.core_v1 import ConfigMap
from steersman.client import JsonPatch, connect
from steersman_testing.envtest import Envtest


@pytest.mark.parametrize("is_cached", [True, False])
async def test_applied_fields_move_on_real_server(envtest: Envtest, envtest_namespace: str, is_cached: bool) -> None:
    async with connect(envtest.config) as transport:
        await check_applied_fields(RenamedOperator(transport, envtest_namespace), is_cached=is_cached)


@pytest.mark.parametrize("is_cached", [True, False])
async def test_unforced_value_moves_on_real_server(envtest: Envtest, envtest_namespace: str, is_cached: bool) -> None:
    async with connect(envtest.config) as transport:
        await check_other_value(RenamedOperator(transport, envtest_namespace), is_cached=is_cached)


async def test_updated_fields_move_on_real_server(envtest: Envtest, envtest_namespace: str) -> None:
    async with connect(envtest.config) as transport:
        operator = RenamedOperator(transport, envtest_namespace)
        await check_updated_fields(operator)
        release = JsonPatch([{"op": "remove", "path": "/metadata/finalizers"}])
        await operator.previous.patch(ConfigMap, operator.key("updated"), release)


async def test_status_fields_move_on_real_server(envtest: Envtest, envtest_namespace: str) -> None:
    envtest.install_crds(Widget)
    async with connect(envtest.config) as transport:
        await check_status(RenamedOperator(transport, envtest_namespace))
