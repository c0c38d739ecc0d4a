"""Skipped applies would not change the object on the real API server."""

from __future__ import annotations

import pytest

from framework_support.apply_configurations import NAMESPACE, all_apply_configurations
from framework_support.widget import Widget, WidgetApply, WidgetSpecApply, WidgetStatus
from steersman.api.apply import meta
from steersman.client import Client, connect
from steersman.client.encode import status_document, with_owner
from steersman.client.managed_fields import apply_would_change
from steersman_testing.envtest import Envtest

MANAGER = "unchanged"


@pytest.mark.parametrize("name", all_apply_configurations())
async def test_repeated_apply_changes_nothing(envtest: Envtest, name: str) -> None:
    envtest.install_crds(Widget)
    async with connect(envtest.config) as transport:
        client = Client(transport, field_manager=MANAGER)
        config = all_apply_configurations()[name]
        applied = await client.apply(config)
        assert apply_would_change(with_owner(config), applied, MANAGER) == (name == "a stateful set")
        again = await client.apply(config)
        assert again.metadata.resource_version == applied.metadata.resource_version


async def test_apply_status_with_empty_lists_changes_nothing(envtest: Envtest) -> None:
    envtest.install_crds(Widget)
    async with connect(envtest.config) as transport:
        client = Client(transport, field_manager=MANAGER)
        metadata = meta.ObjectMeta(name="described", namespace=NAMESPACE)
        widget = await client.apply(WidgetApply(metadata=metadata, spec=WidgetSpecApply(depth=1)))
        status = WidgetStatus(depth=0, note="")
        described = await client.apply_status(widget, status)
        assert not apply_would_change(status_document(described, status), described, MANAGER, "status")
