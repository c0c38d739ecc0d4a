"""Versions of the frameworks, read from their manifests."""

from __future__ import annotations

import platform
import re
import tomllib
from importlib import metadata
from pathlib import Path

_HERE = Path(__file__).parent


def versions() -> dict[str, str]:
    """Return the pinned version of each framework and of Python."""
    modules = (_HERE / "controller_runtime" / "go.mod").read_text()
    crates = tomllib.loads((_HERE / "kube_rs" / "Cargo.toml").read_text())["dependencies"]
    packages = (_HERE / "kopf_operator" / "requirements.txt").read_text()
    return {
        "controller-runtime": _required_match(r"controller-runtime v(\S+)", modules),
        "client-go": _required_match(r"client-go v(\S+)", modules),
        "kube-rs": crates["kube"]["version"].removeprefix("="),
        "kopf": _required_match(r"^kopf==(\S+)", packages),
        "steersman": metadata.version("steersman"),
        "uvloop": metadata.version("uvloop"),
        "python": platform.python_version(),
    }


def _required_match(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ValueError(f"no {pattern} in the manifest")
    return match[1]
