"""Descriptions: the docstrings of classes and of their attributes."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import cast

from steersman.meta import FrozenStruct


def class_text(kind: type) -> str | None:
    """The docstring of ``kind`` itself, not of its bases."""
    text = vars(kind).get("__doc__")
    return inspect.cleandoc(text) if text else None


@cache
def attribute_texts(kind: type[FrozenStruct]) -> dict[str, str]:
    """The string literals that follow attributes (PEP 257's attribute docstrings), base classes included.

    Where there is no source, such as in an interpreter's prompt, there are none.
    """
    found: dict[str, str] = {}
    for cls in reversed(kind.__mro__):
        if not issubclass(cls, FrozenStruct) or cls is FrozenStruct:
            continue
        try:
            source = inspect.getsource(cls)
        except (OSError, TypeError):
            continue
        body = cast("ast.ClassDef", ast.parse(textwrap.dedent(source)).body[0]).body
        for attribute, text in pairwise(body):
            match attribute, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(value))):
                    found[name] = inspect.cleandoc(value)
                case _:
                    continue
    return found
