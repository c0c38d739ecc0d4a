"""Check the docstrings of public names, from which the reference is built."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

import steersman
from framework_support.documented_code import DOCS

# Modules that are public themselves, because their package does not export their names.
STANDALONE_MODULES = (
    "steersman.errors",
    "steersman.manager.flags",
    "steersman.observability.gc_tuning",
    "steersman.observability.heartbeat",
    "steersman.observability.logging",
    "steersman.observability.runtime",
    "steersman_testing.envtest",
)
PACKAGES = (
    "steersman.api",
    "steersman.cache",
    "steersman.client",
    "steersman.controller",
    "steersman.dependents",
    "steersman_manifests.crd",
    "steersman.manager",
    "steersman.meta",
    "steersman.observability",
    "steersman_manifests.rbac",
    "steersman.webhook",
    "steersman_cel",
    "steersman_cli",
    "steersman_cli.codegen",
    "steersman_cli.packaging",
    "steersman_testing",
)
# A reference to the docstring of another name.
REFERENCE_PATTERN = re.compile(r"\b([Aa]s|see) ``\w+(\.\w+)?``")


class PublicName(NamedTuple):
    """A public name, in the module that defines it."""

    module: Any
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{self.module.__name__}.{self.name}"


def package_modules(package_name: str) -> Iterator[Any]:
    package = importlib.import_module(package_name)
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if package_name != "steersman.api":
            yield importlib.import_module(found.name)


@cache
def source_of(module: Any) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def is_defined_in(module: Any, name: str) -> bool:
    tree = source_of(module)
    return any(name in assigned_names(node) for node in tree.body)


def assigned_names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {t.id for t in node.targets if isinstance(t, ast.Name)}
    return {node.target.id} if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else set()


def public_names() -> dict[str, PublicName]:
    found: dict[str, PublicName] = {}
    for package_name in PACKAGES:
        front = importlib.import_module(package_name)
        modules = [
            m for m in package_modules(package_name) if not m.__name__.startswith("steersman_testing.envtest.")
        ]
        for name in getattr(front, "__all__", ()):
            value = getattr(front, name)
            defining_module = importlib.import_module(getattr(value, "__module__", None) or front.__name__)
            home = next(m for m in (defining_module, *reversed(modules)) if is_defined_in(m, name))
            public_name = PublicName(home, name, value)
            found[str(public_name)] = public_name
    for path in STANDALONE_MODULES:
        module = importlib.import_module(path)
        for name in getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]:
            value = getattr(module, name)
            home = importlib.import_module(getattr(value, "__module__", path) or path)
            if home.__name__.startswith(path) and (inspect.isclass(value) or inspect.isfunction(value)):
                public_name = PublicName(home, name, value)
                found[str(public_name)] = public_name
    return found


NAMES = public_names()
CALLABLES = {path: n for path, n in NAMES.items() if inspect.isclass(n.value) or inspect.isfunction(n.value)}


def node_of(name: PublicName) -> ast.stmt:
    # Of overloads, the implementation comes last.
    body = source_of(name.module).body
    return next(node for node in reversed(body) if name.name in assigned_names(node))


def overloads(name: PublicName) -> list[ast.FunctionDef]:
    """Return all definitions of a function, the implementation last."""
    return [
        node for node in source_of(name.module).body if isinstance(node, ast.FunctionDef) and node.name == name.name
    ]


def literal_after(name: PublicName) -> str:
    """Return the string below an assignment, its documentation in mkdocstrings."""
    body = source_of(name.module).body
    place = next(i for i, node in enumerate(body) if name.name in assigned_names(node))
    following = body[place + 1] if place + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return str(following.value.value)
    return ""


def documentation(name: PublicName) -> str:
    node = node_of(name)
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.get_docstring(node) or ""
    return literal_after(name)


def public_functions(name: PublicName) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Yield public functions and methods with the docstrings that document them."""
    node = node_of(name)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield name.name, node, ast.get_docstring(node) or ""
    if isinstance(node, ast.ClassDef):
        for method in node.body:
            if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            overload = any("overload" in ast.unparse(d) for d in method.decorator_list)
            if (not method.name.startswith("_") or method.name in ("__init__", "__post_init__")) and not overload:
                own = ast.get_docstring(method) or ""
                class_doc = ast.get_docstring(node) or "" if method.name.startswith("__") else ""
                yield f"{name.name}.{method.name}", method, own + class_doc


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    arguments = function.args
    return [
        a for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs) if a.arg not in ("self", "cls")
    ]


def test_documented_packages_match_the_tree() -> None:
    packages = {f"steersman.{m.name}" for m in pkgutil.iter_modules(steersman.__path__) if m.ispkg}
    assert packages == {p for p in PACKAGES if p.startswith("steersman.")}
    assert len(NAMES) > 150


@pytest.mark.parametrize("path", NAMES)
def test_docstring_has_a_meaningful_summary(path: str) -> None:
    docstring = documentation(NAMES[path])
    first = docstring.split("\n\n")[0]
    normalized = re.sub(r"[\W_]", "", first).lower()
    assert len(first.split()) >= 3, f"{path} says nothing: {docstring!r}"
    assert normalized != NAMES[path].name.replace("_", "").lower()


@pytest.mark.parametrize("path", CALLABLES)
def test_every_public_method_has_a_docstring(path: str) -> None:
    silent = [
        where
        for where, node, said in public_functions(CALLABLES[path])
        if not said and not node.name.startswith("__")
    ]
    assert silent == []


@pytest.mark.parametrize("path", CALLABLES)
def test_docstring_names_existing_parameters(path: str) -> None:
    """Each described argument and attribute exists."""
    name = CALLABLES[path]
    for where, function, said in public_functions(name):
        known = {a.arg for a in parameters(function)} | {
            a.arg for a in (function.args.vararg, function.args.kwarg) if a is not None
        }
        if not inspect.isclass(name.value):
            known |= {a.arg for overload in overloads(name) for a in parameters(overload)}
        if (
            (inspect.isclass(name.value) and function.name == "__init__")
            or not inspect.isclass(name.value)
            or function.name != "__post_init__"
        ):
            assert described_names(said, "Args") <= known, where
    if inspect.isclass(name.value):
        there = {f for base in name.value.__mro__ for f in (*vars(base), *inspect.get_annotations(base))}
        there |= {node.attr for node in ast.walk(node_of(name)) if isinstance(node, ast.Attribute)}
        assert described_names(documentation(name), "Attributes") <= there


@pytest.mark.parametrize("path", CALLABLES)
def test_docstring_describes_numeric_arguments(path: str) -> None:
    """A numeric argument has a description, which states its unit."""
    for where, function, said in public_functions(CALLABLES[path]):
        for argument in parameters(function):
            kind = ast.unparse(argument.annotation) if argument.annotation is not None else ""
            if re.search(r"\b(int|float)\b", kind) and not REFERENCE_PATTERN.search(said):
                assert re.search(rf"\b{argument.arg}\b", said), f"{where} does not speak of {argument.arg}"


@pytest.mark.parametrize("path", CALLABLES)
def test_docstring_lists_raised_errors(path: str) -> None:
    for where, function, said in public_functions(CALLABLES[path]):
        for raised in raised_errors(function):
            assert re.search(rf"\b{raised}\b", said), f"{where} raises {raised} and does not say so"


def raised_errors(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the exceptions that the function raises and does not catch."""
    found: set[str] = set()
    pending: list[ast.AST] = list(function.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            found.add(node.exc.func.id)
        pending.extend(ast.iter_child_nodes(node))
    return {name for name in found if name[0].isupper()}


def described_names(docstring: str, section: str) -> set[str]:
    """The names that a section of a docstring in Google's style describes."""
    match = re.search(rf"^{section}:\n((?: +.*\n?|\n)+)", docstring, re.MULTILINE)
    if match is None:
        return set()
    lines = [line for line in match[1].splitlines() if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    heads = (line[indent:].partition(":")[0] for line in lines if not line[indent].isspace())
    return {name.strip() for head in heads for name in head.split(",")}


def test_reference_covers_every_public_module() -> None:
    pages = (DOCS / "reference" / "api").glob("*.md")
    listed = {module for page in pages for module in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)}
    # The commands have a page of their own, written for those who type them.
    homes = {n.module.__name__ for n in NAMES.values()} - {"steersman_cli.app", "steersman_cli.testing"}
    assert sorted(h for h in homes if not any(h.startswith(each) for each in listed)) == []
