"""YAML with template actions in it: Helm's templates are text, manifests are not."""

from __future__ import annotations

import re
from typing import Any

from steersman.meta.documents import as_text
from steersman.meta.manifests import Manifest

# A word that YAML writes as it is, wherever it stands.
_MARK = "steersmanaction{}mark"
_ALONE = re.compile(r"^(?P<indent> *)(?:- )?(?P<mark>steersmanaction\d+mark)(?:: null)?$")
_WHOLE = re.compile(r"^(?P<head> *(?:- )*(?:\S+: )?)(?P<mark>steersmanaction\d+mark)$")
_WITHIN = re.compile(r"steersmanaction\d+mark")
_INDENT = re.compile(r"<(\d+)>")


class TemplateText:
    """Notes template actions, gives marks that stand for them in manifests, and writes both together.

    What is no action is literal: where the text of a manifest looks like one, it is escaped.
    """

    def __init__(self) -> None:
        self._actions: dict[str, str] = {}
        self._numbers: set[str] = set()

    def inline(self, action: str) -> str:
        """What stands for ``action`` within a text; one that looks like a number stays a text."""
        mark = _MARK.format(len(self._actions))
        self._actions[mark] = action
        return mark

    def number(self, action: str) -> str:
        """What stands for an ``action`` that gives a number."""
        mark = self.inline(action)
        self._numbers.add(mark)
        return mark

    def block(self, lines: str) -> dict[str, None]:
        """What stands for whole lines among the keys of a mapping.

        Args:
            lines: indented as if they began at the margin; ``<2>`` is the number of columns two to the right of where
                they come to stand, for ``nindent``.
        """
        return {self.inline(lines): None}

    def item(self, lines: str) -> str:
        """What stands for whole lines among the items of a list; they begin with ``-``."""
        return self.inline(lines)

    def write(self, manifest: Manifest | list[Any]) -> str:
        """The template of ``manifest``."""
        return "\n".join(self._line(line) for line in as_text(manifest).splitlines()) + "\n"

    def _line(self, line: str) -> str:
        if (alone := _ALONE.match(line)) and "\n" in (action := self._actions[alone["mark"]]):
            return self._filled(self._indented(action, alone["indent"]))
        if (whole := _WHOLE.match(line)) and (mark := whole["mark"]) not in self._numbers:
            return f"{literal(whole['head'])}{self._actions[mark].removesuffix(' }}')} | quote }}}}"
        return self._filled(literal(line))

    def _filled(self, text: str) -> str:
        return _WITHIN.sub(lambda found: self._actions[found[0]], text)

    def _indented(self, lines: str, indent: str) -> str:
        columns = _INDENT.sub(lambda found: str(len(indent) + int(found[1])), lines.rstrip("\n"))
        return "\n".join(f"{indent}{line}" if line else line for line in columns.split("\n"))


def literal(text: str) -> str:
    """``text`` such that a template gives it as it is."""
    return text.replace("{{", '{{ "{{" }}')


def under(condition: str, text: str) -> str:
    """``text`` where ``condition`` holds."""
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text
