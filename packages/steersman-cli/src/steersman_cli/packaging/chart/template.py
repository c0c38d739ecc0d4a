"""Render manifests as Helm templates: YAML text with template actions."""

from __future__ import annotations

import re
from typing import Any

from steersman_manifests.manifest_files import Manifest
from steersman_manifests.yaml_codec import dump_yaml

# YAML never quotes this placeholder, so that rendering can replace it.
_PLACEHOLDER = "steersmanaction{}mark"
_PLACEHOLDER_LINE = re.compile(r"^(?P<indent> *)(?:- )?(?P<mark>steersmanaction\d+mark)(?:: null)?$")
_PLACEHOLDER_VALUE = re.compile(r"^(?P<head> *(?:- )*(?:\S+: )?)(?P<mark>steersmanaction\d+mark)$")
_PLACEHOLDER_ANYWHERE = re.compile(r"steersmanaction\d+mark")
_INDENT_PATTERN = re.compile(r"<(\d+)>")


class HelmTemplate:
    """Registry of template actions, and their placeholders in manifests.

    ``render`` replaces the placeholders by the actions. Other text that looks like an action is escaped.
    """

    def __init__(self) -> None:
        self._actions: dict[str, str] = {}
        self._numbers: set[str] = set()

    def inline(self, action: str) -> str:
        """Return the placeholder of an action in a string. The result is always quoted."""
        placeholder = _PLACEHOLDER.format(len(self._actions))
        self._actions[placeholder] = action
        return placeholder

    def number(self, action: str) -> str:
        """Return the placeholder of an action that renders a number."""
        placeholder = self.inline(action)
        self._numbers.add(placeholder)
        return placeholder

    def block(self, lines: str) -> dict[str, None]:
        """Return the placeholder of lines in a mapping.

        Args:
            lines: lines without indentation. ``<2>`` is replaced by the column of the block plus 2, for ``nindent``.
        """
        return {self.inline(lines): None}

    def item(self, lines: str) -> str:
        """Return the placeholder of lines in a list. The lines start with ``-``."""
        return self.inline(lines)

    def render(self, manifest: Manifest | list[Any]) -> str:
        """Render the template of ``manifest``."""
        return "\n".join(self._render_line(line) for line in dump_yaml(manifest).splitlines()) + "\n"

    def _render_line(self, line: str) -> str:
        if (line_match := _PLACEHOLDER_LINE.match(line)) and "\n" in (action := self._actions[line_match["mark"]]):
            return self._substitute(self._indent(action, line_match["indent"]))
        if (value_match := _PLACEHOLDER_VALUE.match(line)) and (
            placeholder := value_match["mark"]
        ) not in self._numbers:
            return (
                f"{escape_template(value_match['head'])}{self._actions[placeholder].removesuffix(' }}')} | quote }}}}"
            )
        return self._substitute(escape_template(line))

    def _substitute(self, text: str) -> str:
        return _PLACEHOLDER_ANYWHERE.sub(lambda found: self._actions[found[0]], text)

    def _indent(self, lines: str, indent: str) -> str:
        columns = _INDENT_PATTERN.sub(lambda found: str(len(indent) + int(found[1])), lines.rstrip("\n"))
        return "\n".join(f"{indent}{line}" if line else line for line in columns.split("\n"))


def escape_template(text: str) -> str:
    """Escape ``text``, so that a template renders it unchanged."""
    return text.replace("{{", '{{ "{{" }}')


def conditional(condition: str, text: str) -> str:
    """Wrap ``text`` in an ``if`` action; an empty condition is always true."""
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text
