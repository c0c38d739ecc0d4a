"""Proxy to the Unix socket of etcd that can be stalled."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from pathlib import Path

_CHUNK = 65536


class SocketProxy:
    """Forwards connections from the Unix socket ``path`` to ``target`` in a thread."""

    def __init__(self, path: Path, target: Path) -> None:
        self._target = target
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._forwarding = threading.Event()
        self._forwarding.set()
        self._wake, self._waker = socket.socketpair()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        for own_socket in (self._listener, self._wake):
            self._selector.register(own_socket, selectors.EVENT_READ)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def stall(self) -> None:
        """Stop forwarding in both directions."""
        self._forwarding.clear()

    def resume(self) -> None:
        """Continue to forward."""
        self._forwarding.set()

    def stop(self) -> None:
        """Close all connections."""
        self._stopping = True
        self._forwarding.set()
        self._waker.send(b"x")
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select():
                self._forwarding.wait()
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._listener:
                    self._accept()
                elif source is not self._wake and source in self._peers:
                    self._forward(source)
        for own_socket in (*self._peers, self._listener, self._wake, self._waker):
            own_socket.close()
        self._selector.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.connect(str(self._target))
        for one, other in ((client, server), (server, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        target = self._peers[source]
        try:
            data = source.recv(_CHUNK)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for end in (source, target):
            self._peers.pop(end, None)
            with contextlib.suppress(KeyError):
                self._selector.unregister(end)
            end.close()
