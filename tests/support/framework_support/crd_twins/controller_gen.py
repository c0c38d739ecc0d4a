"""What controller-gen makes of the Go twins, and what Go keeps of definitions."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from devcluster import layout, lock

_MODULE = Path(__file__).parent / "go"
_OPTIONS = "crd:generateEmbeddedObjectMeta=true,allowDangerousTypes=true"


@cache
def generated(max_desc_len: int | None = None) -> dict[str, Any]:
    """The definitions by the plural of their kinds; ``max_desc_len`` 0 leaves descriptions out."""
    directory = _made(_OPTIONS + ("" if max_desc_len is None else f",maxDescLen={max_desc_len}"))
    found = [yaml.safe_load(file.read_text()) for file in sorted(directory.glob("*.yaml"))]
    return {manifest["spec"]["names"]["plural"]: manifest for manifest in found}


def _made(options: str) -> Path:
    """The directory of what controller-gen wrote, which is kept like the programs of the devcluster."""
    place = layout.cache_directory() / "crd-twins"
    directory = place / _key(options)
    with lock.exclusive(place / ".lock", lambda: None):
        if not directory.is_dir():
            unfinished = place / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            package = "sigs.k8s.io/controller-tools/cmd/controller-gen"
            unfinished.mkdir(parents=True)
            _go("run", "-p", "2", package, options, "paths=./...", f"output:crd:dir={unfinished}")
            unfinished.rename(directory)
    return directory


def _key(options: str) -> str:
    digest = hashlib.sha256(options.encode())
    for source in sorted([_MODULE / "go.mod", _MODULE / "go.sum", *_MODULE.rglob("*.go")]):
        content = source.read_bytes()
        digest.update(f"{source.relative_to(_MODULE)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def kept_by_v1beta1(manifest: dict[str, Any]) -> dict[str, Any]:
    """What the Go type of ``apiextensions.k8s.io/v1beta1`` keeps of ``manifest``; unknown fields fail."""
    return json.loads(_go("run", "./roundtrip", text=json.dumps(manifest)))


def _go(*arguments: str, text: str = "") -> str:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    done = subprocess.run(
        ["go", *arguments], cwd=_MODULE, env=environment, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
