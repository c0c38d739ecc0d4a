"""Descriptions: the docstrings of classes and of their attributes."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from steersman.meta import FrozenStruct

_Docstrings = dict[str, str]


def class_docstring(kind: type) -> str | None:
    """The docstring of ``kind`` itself, not of its bases."""
    text = vars(kind).get("__doc__")
    return inspect.cleandoc(text) if text else None


@cache
def attribute_docstrings(kind: type[FrozenStruct]) -> _Docstrings:
    """Attribute docstrings (PEP 257) of ``kind`` and its base classes.

    Empty without source, such as in an interactive interpreter.
    """
    found: _Docstrings = {}
    for cls in reversed(kind.__mro__):
        if issubclass(cls, FrozenStruct) and cls is not FrozenStruct:
            found |= _module_docstrings(cls.__module__).get(cls.__qualname__, {})
    return found


# Lines and docstrings by file. ``linecache`` returns the same list until the file changes.
_cache_by_file: dict[str, tuple[list[str], dict[str, _Docstrings]]] = {}


def _module_docstrings(name: str) -> dict[str, _Docstrings]:
    """Attribute docstrings of each class of a module, by qualified name.

    Each module is parsed once. ``inspect.getsource`` would parse it once per class.
    """
    try:
        module = sys.modules[name]
        file = inspect.getfile(module)
        lines, _ = inspect.findsource(module)
    except (KeyError, OSError, TypeError):
        return {}
    cached = _cache_by_file.get(file)
    if cached is None or cached[0] is not lines:
        docstrings: dict[str, _Docstrings] = {}
        for qualname, cls in _iter_classes(ast.parse("".join(lines)), ""):
            docstrings.setdefault(qualname, _class_attribute_docstrings(cls))
        cached = _cache_by_file[file] = lines, docstrings
    return cached[1]


def _iter_classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes below ``node`` with their qualified names, which start with ``prefix``."""
    for inner in ast.iter_child_nodes(node):
        match inner:
            case ast.ClassDef(name):
                yield f"{prefix}{name}", inner
                yield from _iter_classes(inner, f"{prefix}{name}.")
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield from _iter_classes(inner, f"{prefix}{name}.<locals>.")
            case ast.stmt() | ast.excepthandler() | ast.match_case():
                yield from _iter_classes(inner, prefix)
            case _:
                continue


def _class_attribute_docstrings(cls: ast.ClassDef) -> _Docstrings:
    found: _Docstrings = {}
    for attribute, text in pairwise(cls.body):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                found[name] = inspect.cleandoc(value)
            case _:
                continue
    return found
