"""Tests of the etcd client with a fake gateway: values are preserved."""

from __future__ import annotations

import base64
import json
import socketserver
import threading
from collections import Counter
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import cast

import pytest
from benchmarks.etcd import rewrite_keys


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class FakeEtcdGateway(socketserver.ThreadingUnixStreamServer):
    """Stores keys and counts the puts."""

    daemon_threads = True

    def __init__(self, address: Path) -> None:
        super().__init__(str(address), FakeEtcdHandler)
        self.address = address
        self.values = {encoded(f"/registry/pods/{n}"): encoded(f"pod {n}") for n in range(20)}
        self.put: Counter[tuple[str, str]] = Counter()


class FakeEtcdHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        gateway = cast(FakeEtcdGateway, self.server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v3/kv/put":
            gateway.put[body["key"], body["value"]] += 1
            answer: dict[str, object] = {}
        else:
            value = gateway.values.get(body["key"])
            answer = {"kvs": [{"key": body["key"], "value": value}]} if value else {"header": {}}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def gateway(tmp_path: Path) -> Generator[FakeEtcdGateway]:
    with FakeEtcdGateway(tmp_path / "etcd") as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield server
        server.shutdown()
        serving.join()


async def test_rewrite_puts_each_key_once_with_its_value(gateway: FakeEtcdGateway) -> None:
    await rewrite_keys(gateway.address, (f"/registry/pods/{n}" for n in range(20)))
    assert gateway.put == Counter(dict.fromkeys(gateway.values.items(), 1))


async def test_a_key_that_is_not_there_is_an_error(gateway: FakeEtcdGateway) -> None:
    with pytest.raises(OSError, match="etcd has no /registry/pods/99"):
        await rewrite_keys(gateway.address, ["/registry/pods/99"])
    assert not gateway.put
