"""Web application that counts visits. ``app.py migrate`` migrates its database.

Versions 1.2.0 and 1.3.0 work. Pods of 1.3.1 never become ready, and the migration to 1.4.0 fails.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import LiteralString

import psycopg

VERSION = Path("/opt/version").read_text().strip()
DATABASE = os.environ.get("DATABASE_URL", "")

MIGRATIONS: dict[str, LiteralString] = {
    "1.2.0": "CREATE TABLE visits (at timestamptz NOT NULL DEFAULT now())",
    "1.3.0": "ALTER TABLE visits ADD COLUMN version text",
    "1.4.0": "ALTER TABLE vists ADD COLUMN browser text",
}
"""SQL statement of each version. The previous version must work with the migrated database."""

# Key of the advisory lock that serializes migrations.
MIGRATION_LOCK_ID = 2026


def version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def migrate() -> None:
    """Migrate the database to this version. Idempotent."""
    with psycopg.connect(DATABASE, connect_timeout=5) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK_ID,))
        connection.execute("CREATE TABLE IF NOT EXISTS migrations (version text PRIMARY KEY)")
        done = {row[0] for row in connection.execute("SELECT version FROM migrations")}
        for version in sorted(MIGRATIONS, key=version_key):
            if version not in done and version_key(version) <= version_key(VERSION):
                connection.execute(MIGRATIONS[version])
                connection.execute("INSERT INTO migrations VALUES (%s)", (version,))
                print(f"migrated to {version}")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/livez":
            self.respond(200, {"alive": True})
        elif self.path == "/readyz":
            self.respond(503 if VERSION == "1.3.1" else 200, {"version": VERSION, "migrations": self.migrations()})
        else:
            self.respond(200, {"version": VERSION, "visits": self.record_visit()})

    def migrations(self) -> list[str]:
        if not DATABASE:
            return []
        with psycopg.connect(DATABASE, connect_timeout=2) as connection:
            return [row[0] for row in connection.execute("SELECT version FROM migrations ORDER BY version")]

    def record_visit(self) -> int | None:
        if not DATABASE:
            return None
        with psycopg.connect(DATABASE, connect_timeout=2) as connection:
            connection.execute("INSERT INTO visits DEFAULT VALUES")
            found = connection.execute("SELECT count(*) FROM visits").fetchone()
        return found[0] if found else 0

    def respond(self, status: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the access log, because probes send requests every two seconds."""


def serve() -> None:
    # PID 1 needs an explicit handler to exit on SIGTERM.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        ThreadingHTTPServer(("", 8080), Handler).serve_forever()


if __name__ == "__main__":
    migrate() if sys.argv[1:] == ["migrate"] else serve()
