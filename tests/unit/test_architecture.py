"""Check layers, module sizes, documented names and the cost of imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import steersman

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "steersman.cache",
    "steersman.client",
    "steersman.controller",
    "steersman.manager",
    "steersman.meta",
    "steersman_manifests.crd",
    "steersman_manifests.rbac",
    "steersman_cli",
    "steersman_cli.packaging",
    "steersman_testing",
)


def test_imports_follow_the_layers() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout


def imported(*packages: str) -> set[str]:
    program = f"import sys, {', '.join(packages)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    return set(done.stdout.split())


def test_operator_without_endpoints_imports_no_web_server() -> None:
    modules = imported(
        "steersman", "steersman.client", "steersman.cache", "steersman.controller", "steersman_manifests.crd"
    )
    assert "httptools" in modules
    unwanted = {
        "aiohttp",
        "typer",
        "hypothesis",
        "steersman.manager",
        "steersman_testing",
        "steersman.api.apps_v1",
    }
    assert modules & unwanted == set()


def sources() -> list[Path]:
    files = ROOT.glob("packages/*/src/**/*.py")
    return [f for f in files if not f.read_text().startswith("# Generated")]


def test_modules_have_at_most_500_lines() -> None:
    lengths = {str(f.relative_to(ROOT)): len(f.read_text().splitlines()) for f in sources()}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


# The modules of ``steersman.api`` are namespaces: each has the names of one group-version of Kubernetes.
NAMESPACES = "packages/steersman/src/steersman/api/"
SHARED_CLASS_NAMES = {
    "ObjectMeta": "the apply type is used as apply.meta.ObjectMeta; the in-memory API server has one of its own",
    "OwnerReference": "the apply type is used as apply.meta.OwnerReference",
    "ManagedFieldsEntry": "the in-memory API server must not share types with the code under test",
    "Impersonation": "configuration of a client, and of a request to the in-memory API server",
}


def public_classes(file: Path) -> Iterator[str]:
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def test_no_public_class_name_exists_twice() -> None:
    places: dict[str, list[str]] = {}
    for file in sources():
        name = str(file.relative_to(ROOT))
        if name.startswith(NAMESPACES):
            continue
        for each in public_classes(file):
            places.setdefault(each, []).append(name)
    assert {each for each, found in places.items() if len(found) > 1} == set(SHARED_CLASS_NAMES), places


def test_class_names_in_apply_namespaces_are_unique() -> None:
    for file in (ROOT / NAMESPACES / "apply").glob("*.py"):
        names = list(public_classes(file))
        assert len(names) == len(set(names)), file.name


def test_no_module_is_named_utils_or_helpers() -> None:
    names = {f.stem for f in sources()} | {f.parent.name for f in sources()}
    assert names & {"utils", "util", "helpers", "helper", "common", "misc"} == set()


def public_names(package_name: str) -> Iterator[tuple[str, Any]]:
    """Yield the names in ``__all__``, or those that the modules define."""
    package = importlib.import_module(package_name)
    if hasattr(package, "__all__"):
        yield from ((name, getattr(package, name)) for name in package.__all__)
        return
    inner = [m.name for m in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package_name}.")]
    for module in (package, *(importlib.import_module(name) for name in inner)):
        for name, value in vars(module).items():
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
                yield name, value


def undocumented(name: str, value: Any) -> Iterator[str]:
    if not inspect.isroutine(value) and not inspect.isclass(value):
        return
    if not value.__doc__:
        yield name
    for member, method in vars(value).items() if inspect.isclass(value) else ():
        function: Any = method.fget if isinstance(method, property) else method
        # A method may inherit its docstring.
        if not member.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(getattr(value, member)):
            yield f"{name}.{member}"


@pytest.mark.parametrize("package_name", [*PACKAGES, "steersman.errors", "steersman.observability"])
def test_public_names_are_documented(package_name: str) -> None:
    assert importlib.import_module(package_name).__doc__
    names = list(public_names(package_name))
    assert names
    assert [missing for name, value in names for missing in undocumented(name, value)] == []


@pytest.mark.parametrize("package_name", PACKAGES)
def test_packages_list_their_public_names(package_name: str) -> None:
    package = importlib.import_module(package_name)
    names: list[str] = package.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(package, name) for name in names)


def test_package_has_py_typed_marker() -> None:
    assert (Path(steersman.__file__).parent / "py.typed").exists()
