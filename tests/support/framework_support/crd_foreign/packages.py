"""Generated type packages, written and imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

from steersman.meta import Object
from steersman_cli.codegen import generate_package
from steersman_cli.codegen.names import module_name


def written(definitions: Iterable[dict[str, Any]], directory: Path, name: str, **options: Any) -> Path:
    """Generate the package ``name`` into ``directory`` and add it to the path."""
    place = directory / name
    for path, text in generate_package(definitions, **options).files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    invalidate_caches()
    return place


def kinds_of(manifest: dict[str, Any], name: str) -> list[type[Object]]:
    """Classes of all versions of ``manifest`` in the package ``name``."""
    spec = manifest["spec"]
    modules = [import_module(f"{name}.{module_name(spec['group'], v['name'])}") for v in spec["versions"]]
    return [getattr(module, spec["names"]["kind"]) for module in modules]


def ruff(directory: Path, width: int) -> str:
    """Changes that ruff would make."""
    options = ["--isolated", "--no-cache", "--line-length", str(width), "."]
    said = ""
    for command in (["format", "--diff", "--quiet"], ["check", "--quiet"]):
        tool = [sys.executable, "-m", "ruff", *command, *options]
        done = subprocess.run(tool, cwd=directory, capture_output=True, text=True, check=False)
        said += done.stdout + done.stderr
    return said
