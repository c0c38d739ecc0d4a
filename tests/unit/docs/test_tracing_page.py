"""Run the code of "Trace reconciles" and check the listed attributes."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from framework_support.controller_env import ControllerEnv
from framework_support.widget import Widget, WidgetStatus
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager, ManagerOptions
from steersman_testing import virtual_time

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "trace-reconciles.md").read_text()


class FailingOnceReconciler(RequestReconciler[Widget]):
    """Fails at first."""

    failed = False

    async def reconcile(self, request: Request) -> Result:
        if not self.failed:
            self.failed = True
            raise RuntimeError("no lead")
        await self.client.apply_status(await self.client.get(Widget, request), WidgetStatus(depth=1))
        return Result(requeue_after=3600)


@pytest.fixture
def page(tmp_path: Path) -> Any:
    code = re.search(r'^```python title="tracing.py"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)
    assert code is not None
    file = tmp_path / "page_tracing.py"
    # No collector listens here, and the sampler must not choose.
    exporter = "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter\n"
    assert exporter in code[1]
    file.write_text(code[1].replace(exporter, "OTLPSpanExporter = None\n"))
    spec = importlib.util.spec_from_file_location("page_tracing", file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def always_sample(_: float) -> Sampler:
    return ALWAYS_ON


def test_tracing_page_lists_every_attribute(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(page, "OTLPSpanExporter", lambda: exporter)
    monkeypatch.setattr(page, "BatchSpanProcessor", SimpleSpanProcessor)
    monkeypatch.setattr(page, "ParentBasedTraceIdRatio", always_sample)
    trace_one(page.tracer_provider())
    spans = exporter.get_finished_spans()
    assert all(span.resource.attributes["service.name"] == "shop-operator" for span in spans)
    used = {name for span in spans for name in span.attributes or {}}
    assert {"steersman.reconcile.id", "http.request.method", "error.type"} <= used
    assert sorted(name for name in used if f"`{name}`" not in PAGE) == []


@virtual_time
async def trace_one(provider: Any) -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    manager = Manager(world.server, ManagerOptions(tracing=provider), world.runtime)
    manager.controller(Widget).complete(FailingOnceReconciler)
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(5)
    manager.stop()
    await running
