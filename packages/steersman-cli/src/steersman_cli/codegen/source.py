"""Source text of generated modules: imports, classes and fields.

Both generators fill a ``ModuleSource``: ``steersman models`` from CustomResourceDefinitions, ``scripts/generate_api``
from the OpenAPI documents of Kubernetes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from steersman_cli.codegen.expressions import call, keyword_argument, string_literal, subscript
from steersman_cli.codegen.names import is_msgspec_camel

Purpose: TypeAlias = Literal["read", "apply"]
"""``read``: types of objects in responses. ``apply``: types of server-side apply configurations."""

INDENT = "    "
_STANDARD_LIBRARY = frozenset(("collections", "datetime", "typing"))


@dataclass(frozen=True)
class FieldSource:
    """One attribute of a generated class.

    Attributes:
        wire: name in JSON.
        default: expression; None if the attribute is required.
        docstring: lines, indented as in a class body.
    """

    name: str
    wire: str
    annotation: str
    default: str | None = None
    docstring: tuple[str, ...] = ()

    def render(self) -> Iterator[str]:
        default = self.default
        if not is_msgspec_camel(self.name, self.wire):
            arguments = [] if default is None else [keyword_argument("default", default)]
            default = call("msgspec.field", *arguments, keyword_argument("name", string_literal(self.wire)))
        yield f"{INDENT}{self.name}: {self.annotation}" + ("" if default is None else f" = {default}")
        yield from self.docstring


@dataclass(frozen=True)
class ClassSource:
    """One generated class.

    Attributes:
        decorator: expression after ``@``, or empty.
        docstring: lines, indented as in a class body.
        constants: class attributes above the fields, without indentation.
        methods: lines of each method, without indentation.
    """

    name: str
    base: str
    decorator: str = ""
    docstring: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    fields: tuple[FieldSource, ...] = ()
    methods: tuple[tuple[str, ...], ...] = ()

    def render(self) -> str:
        head = [f"@{self.decorator}"] if self.decorator else []
        head.append(f"class {self.name}({self.base}):")
        field_lines = [line for class_field in self.fields for line in class_field.render()]
        attributes = [*(f"{INDENT}{constant}" for constant in self.constants), *field_lines]
        methods = ["\n".join(f"{INDENT}{line}" for line in method) for method in self.methods]
        sections = ["\n".join(lines) for lines in (self.docstring, attributes) if lines]
        return "\n".join([*head, "\n\n".join([*sections, *methods]) or f"{INDENT}pass"])


@dataclass
class ModuleSource:
    """One generated module.

    Attributes:
        name: dotted name, for absolute imports that would import the module itself.
        local_names: names that the module defines. An import with such a name gets a trailing underscore.
        first_party: package whose imports are a block of their own, or empty.
    """

    purpose: Purpose
    name: str = ""
    local_names: frozenset[str] = frozenset()
    first_party: str = ""
    imports: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def add_import(self, module: str, name: str) -> str:
        """Import ``name`` and return its name in this module."""
        if module != self.name:
            self.imports.setdefault(module, set()).add(name)
        return f"{name}_" if self._is_renamed(module, name) else name

    def sequence_type(self, item: str) -> str:
        if self.purpose == "apply":
            return subscript(self.add_import("collections.abc", "Sequence"), item)
        return subscript("tuple", item, "...")

    def mapping_type(self, value: str) -> str:
        if self.purpose == "apply":
            return subscript(self.add_import("collections.abc", "Mapping"), "str", value)
        return subscript(self.add_import("steersman.meta", "FrozenDict"), "str", value)

    def render(self, docstring: Iterable[str], classes: Iterable[ClassSource], exports: Iterable[str] = ()) -> str:
        """The source of the module, not yet formatted.

        Args:
            docstring: lines.
            classes: in the order of definition.
            exports: the names of ``__all__``. Defaults to no ``__all__``.
        """
        names = ", ".join(string_literal(name) for name in exports)
        body = "\n\n\n".join((*([f"__all__ = [{names}]"] if names else []), *(c.render() for c in classes)))
        blocks = self._import_blocks(uses_msgspec="msgspec.field(" in body)
        future = "from __future__ import annotations"
        return "\n\n".join(("\n".join(docstring), future, *blocks, f"\n{body}\n"))

    def _import_blocks(self, uses_msgspec: bool) -> Iterator[str]:
        blocks: tuple[list[str], ...] = ([], [], [], [])
        if uses_msgspec:
            blocks[1].append("import msgspec")
        for module in sorted(self.imports):
            blocks[self._import_block(module)].append(self._import_statement(module))
        yield from ("\n".join(block) for block in blocks if block)

    def _import_block(self, module: str) -> int:
        package = module.split(".", maxsplit=1)[0]
        if not package:
            return 3
        if package in _STANDARD_LIBRARY:
            return 0
        return 2 if package == self.first_party else 1

    def _import_statement(self, module: str) -> str:
        # The order of isort: constants, classes, functions.
        names = sorted(self.imports[module], key=lambda n: (not n.isupper(), n[0].islower(), n.lower()))
        aliases = [f"{n} as {n}_" if self._is_renamed(module, n) else n for n in names]
        return f"from {module} import {', '.join(aliases)}"

    def _is_renamed(self, module: str, name: str) -> bool:
        return not module.startswith(".") and module != self.name and name in self.local_names


def docstring_lines(text: str, width: int, indent: str = INDENT) -> tuple[str, ...]:
    """``text`` as a docstring, wrapped at ``width`` columns. Paragraphs and lists stay as they are."""
    body = text.expandtabs(4).strip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if body.endswith('"'):
        body = f'{body[:-1]}\\"'
    # A single line has quotes on both sides, the first of several lines on one.
    text_width = width - len(indent) - (6 if "\n" not in body and len(body) <= width - len(indent) - 3 else 3)
    first, *others = [line.rstrip() for long in body.splitlines() for line in _wrap(long, text_width)]
    if not others:
        return (f'{indent}"""{first}"""',)
    return (f'{indent}"""{first}', *(f"{indent}{line}" if line else "" for line in others), f'{indent}"""')


def _wrap(line: str, width: int) -> list[str]:
    margin = line[: len(line) - len(line.lstrip())]
    found = textwrap.wrap(
        line, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False, tabsize=4
    )
    return found or [""]
