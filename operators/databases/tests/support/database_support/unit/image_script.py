"""The scripts of images as modules: they lie where no package is."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

IMAGES = Path(__file__).resolve().parents[6] / "operators/databases/images"


@cache
def script(image: str, name: str) -> ModuleType:
    """`script("postgresql", "role")` is what runs in the image as steersman-role."""
    path = IMAGES / image / f"{name}.py"
    found = importlib.util.spec_from_file_location(f"{image}_{name}", path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module
