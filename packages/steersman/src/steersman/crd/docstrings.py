"""Descriptions: the docstrings of classes and of their attributes."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from steersman.meta import FrozenStruct

_Texts = dict[str, str]


def class_text(kind: type) -> str | None:
    """The docstring of ``kind`` itself, not of its bases."""
    text = vars(kind).get("__doc__")
    return inspect.cleandoc(text) if text else None


@cache
def attribute_texts(kind: type[FrozenStruct]) -> _Texts:
    """The string literals that follow attributes (PEP 257's attribute docstrings), base classes included.

    Where there is no source, such as in an interpreter's prompt, there are none.
    """
    found: _Texts = {}
    for cls in reversed(kind.__mro__):
        if issubclass(cls, FrozenStruct) and cls is not FrozenStruct:
            found |= _module_texts(cls.__module__).get(cls.__qualname__, {})
    return found


# By file: its lines, as ``linecache`` keeps them until the file changes, and what was found in them.
_files: dict[str, tuple[list[str], dict[str, _Texts]]] = {}


def _module_texts(name: str) -> dict[str, _Texts]:
    """The texts of each class of a module, by its qualified name.

    A module is parsed once: ``inspect.getsource`` would do so for each of its classes.
    """
    try:
        module = sys.modules[name]
        file = inspect.getfile(module)
        lines, _ = inspect.findsource(module)
    except (KeyError, OSError, TypeError):
        return {}
    known = _files.get(file)
    if known is None or known[0] is not lines:
        texts: dict[str, _Texts] = {}
        for qualified, cls in _classes(ast.parse("".join(lines)), ""):
            texts.setdefault(qualified, _texts(cls))
        known = _files[file] = lines, texts
    return known[1]


def _classes(node: ast.AST, place: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes below ``node``, which is at ``place``: empty, or a qualified name and a dot."""
    for inner in ast.iter_child_nodes(node):
        match inner:
            case ast.ClassDef(name):
                yield f"{place}{name}", inner
                yield from _classes(inner, f"{place}{name}.")
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield from _classes(inner, f"{place}{name}.<locals>.")
            case ast.stmt() | ast.excepthandler() | ast.match_case():
                yield from _classes(inner, place)
            case _:
                continue


def _texts(cls: ast.ClassDef) -> _Texts:
    found: _Texts = {}
    for attribute, text in pairwise(cls.body):
        match attribute, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                found[name] = inspect.cleandoc(value)
            case _:
                continue
    return found
