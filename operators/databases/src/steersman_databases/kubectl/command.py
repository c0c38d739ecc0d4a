"""Context and exit codes of commands.

0 means success, 1 a problem of the cluster, and 2 an invalid request.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, get_type_hints

import msgspec
import typer
import yaml

from steersman.client import Client, connect, load_config
from steersman.errors import ApiError, ConfigurationError, ConnectionFailed, SteersmanError
from steersman.meta import ObjectKey

T = TypeVar("T")
P = ParamSpec("P")
FIELD_MANAGER = "kubectl-steersman"
EXIT_PROBLEM_FOUND, EXIT_USAGE = 1, 2


class OperationRejected(SteersmanError):
    """The cluster does not do what was requested: exit code 1."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Cluster, namespace and output format. Empty values come from the kubeconfig."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""
    output: str = "table"

    def run(self, work: Callable[[Client, str], Awaitable[T]]) -> T:
        """Run `work` with a client and the namespace.

        An error ends the process.
        """
        try:
            return asyncio.run(self._work(work))
        except SteersmanError as error:
            typer.echo(f"error: {error}", err=True)
            found = isinstance(error, ApiError | ConnectionFailed | OperationRejected)
            raise typer.Exit(EXIT_PROBLEM_FOUND if found else EXIT_USAGE) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    async def _work(self, work: Callable[[Client, str], Awaitable[T]]) -> T:
        config = load_config(self.kubeconfig or None, context=self.context or None)
        async with connect(config) as transport:
            return await work(Client(transport, field_manager=FIELD_MANAGER), self.namespace or config.namespace)

    def kubectl(self, namespace: str, *arguments: str) -> list[str]:
        """Return a command line of kubectl for the same context."""
        named = {"--context": self.context, "--kubeconfig": self.kubeconfig, "--namespace": namespace}
        return ["kubectl", *(f"{name}={value}" for name, value in named.items() if value), *arguments]

    def print_output(self, content: Any, table: Callable[[], None]) -> None:
        """Print the content as JSON or YAML, or text by `table`."""
        if self.output == "json":
            typer.echo(msgspec.json.format(msgspec.json.encode(content)).decode())
        elif self.output == "yaml":
            typer.echo(yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False), nl=False)
        else:
            table()


NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace. Defaults to that of the context.")
]
ContextOption = Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")]
KubeconfigOption = Annotated[
    str, typer.Option("--kubeconfig", help="Path of the kubeconfig. Defaults to $KUBECONFIG or ~/.kube/config.")
]
OutputOption = Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Output format.")]
_OPTIONS: Mapping[str, tuple[Any, str]] = {
    "namespace": (NamespaceOption, ""),
    "context": (ContextOption, ""),
    "kubeconfig": (KubeconfigOption, ""),
    "output": (OutputOption, "table"),
}


def on_cluster(command: Callable[Concatenate[CommandContext, P], None]) -> Callable[P, None]:
    """Turn a function into a command with kubectl's own options.

    Its first argument is the `CommandContext`.
    """

    @functools.wraps(command)
    def called(*args: P.args, **kwargs: P.kwargs) -> None:
        place = CommandContext(**{name: kwargs.pop(name) for name in _OPTIONS})  # type: ignore[arg-type]
        command(place, *args, **kwargs)

    hints = get_type_hints(command, include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword, annotation=hints[p.name]) for p in own]
    for name, (hint, default) in _OPTIONS.items():
        parameters.append(inspect.Parameter(name, keyword, default=default, annotation=hint))
    called.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
    setattr(called, "__signature__", inspect.Signature(parameters))  # noqa: B010 - what typer reads
    return called


def qualified_name(key: ObjectKey) -> str:
    """Return an object's name for messages."""
    return f"{key.namespace}/{key.name}"


def usage_error(message: str) -> ConfigurationError:
    """Return an error of the invocation: exit code 2."""
    return ConfigurationError(message)


def parse_moment(option: str, text: str) -> datetime:
    """Parse a time with a time zone.

    Args:
        option: name of the option, for the error.

    Raises:
        ConfigurationError: the text is not such a time.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise usage_error(f"{option}: {text!r} is not a time with a time zone, such as 2026-03-01T12:30:00Z")
    return moment


def print_note(message: str) -> None:
    """Print a note that is not part of the output."""
    typer.echo(message, err=True)
