"""Every parameter of PostgreSQL 15, 17 and 18, as a real server of each has it."""

from __future__ import annotations

import json
from pathlib import Path

from steersman_databases.engines.cluster_engine import Setting, SettingCatalog


def _catalog(version: str) -> SettingCatalog:
    rows = json.loads(Path(__file__).with_name(f"{version}.json").read_text())
    return {row["name"]: Setting(**row) for row in rows}


CATALOGS = {version: _catalog(version) for version in ("15", "17", "18")}
