"""The Python of the page on connecting does what the text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from steersman.client import ClusterConfig, Credentials, Identity
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

PAGE = Path(__file__).parents[3] / "docs/how-to/connect.md"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block_names() -> dict[str, Any]:
    """Return the names that the blocks of the page define."""
    defined: dict[str, Any] = {}
    for block in FENCE.findall(PAGE.read_text()):
        exec(compile(block, str(PAGE), "exec"), defined)
    return defined


@virtual_time
async def test_connect_page_first_steps_work() -> None:
    server = InMemoryApiServer(virtual_runtime())
    metadata = {"name": "a", "namespace": "default"}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    server.load({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    defined = block_names()

    class Connected:
        async def __aenter__(self) -> InMemoryApiServer:
            return server

        async def __aexit__(self, *_: object) -> None:
            pass

    def connect(_: object) -> Connected:
        return Connected()

    defined.update(connect=connect, load_config=lambda: None)
    assert await defined["pods"]() == 1


def test_connect_page_snippets_configure_client() -> None:
    defined = block_names()
    config = defined["as_jane"](ClusterConfig(server="https://10.0.0.1"))
    assert (config.impersonate.user, config.impersonate.groups) == ("jane", ("developers",))
    defined["read_from_vault"] = lambda: "t"
    source: Credentials = defined["FromVault"]()
    assert source.load() == Identity("Bearer t")
