"""Command group whose commands are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command


@dataclass(frozen=True)
class LazyCommand:
    """A command in a module that is not imported yet.

    Attributes:
        reference: ``module:name`` of a function, or of a ``typer.Typer`` with subcommands.
        summary: first sentence of its help.
        settings: arguments of ``Typer.command``.
    """

    reference: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def load(self, name: str) -> Any:
        """Import the command."""
        module, _, attribute = self.reference.partition(":")
        target = getattr(import_module(module), attribute)
        if not isinstance(target, typer.Typer):
            group = typer.Typer(add_completion=False, rich_markup_mode=None)
            group.command(name, **self.settings)(target)
            target = group
        command = get_command(target)
        command.name = name
        return command


class LazyGroup(TyperGroup):
    """Group of ``lazy_commands``, which a subclass sets.

    The help of the group and ``--version`` import no command, so that they start fast.
    """

    lazy_commands: ClassVar[Mapping[str, LazyCommand]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return list(self.lazy_commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command, or return None."""
        lazy = self.lazy_commands.get(cmd_name)
        return None if lazy is None else lazy.load(cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the summaries of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self.lazy_commands.items()])
