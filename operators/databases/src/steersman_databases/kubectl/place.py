"""Where a command acts, and how it ends: 0 all is well, 1 something is wrong, 2 it was asked for what cannot be."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
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
WRONG, USAGE = 1, 2


class Refused(SteersmanError):
    """The cluster is there, and does not do what was asked: exit code 1."""


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster, a namespace, and how to tell what was found; empty means what the kubeconfig says."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""
    output: str = "table"

    def run(self, work: Callable[[Client, str], Awaitable[T]]) -> T:
        """Does ``work`` with a client and the namespace, and ends the process if it cannot be done."""
        try:
            return asyncio.run(self._work(work))
        except SteersmanError as error:
            typer.echo(f"error: {error}", err=True)
            found = isinstance(error, ApiError | ConnectionFailed | Refused)
            raise typer.Exit(WRONG if found else USAGE) from None
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    async def _work(self, work: Callable[[Client, str], Awaitable[T]]) -> T:
        config = load_config(self.kubeconfig or None, context=self.context or None)
        async with connect(config) as transport:
            return await work(Client(transport, field_manager=FIELD_MANAGER), self.namespace or config.namespace)

    def kubectl(self, namespace: str, *arguments: str) -> list[str]:
        """The command line of kubectl for the same place."""
        named = {"--context": self.context, "--kubeconfig": self.kubeconfig, "--namespace": namespace}
        return ["kubectl", *(f"{name}={value}" for name, value in named.items() if value), *arguments]

    def tell(self, content: Any, table: Callable[[], None]) -> None:
        """Prints ``content`` as JSON or YAML, or lets ``table`` print what people read."""
        if self.output == "json":
            typer.echo(msgspec.json.format(msgspec.json.encode(content)).decode())
        elif self.output == "yaml":
            typer.echo(yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False), nl=False)
        else:
            table()


Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace; that of the context unless given.")]
Context = Annotated[str, typer.Option("--context", help="A context of the kubeconfig.")]
Kubeconfig = Annotated[
    str, typer.Option("--kubeconfig", help="A kubeconfig file; $KUBECONFIG or ~/.kube/config unless given.")
]
Output = Annotated[Literal["table", "json", "yaml"], typer.Option("--output", "-o", help="Output format.")]
_OPTIONS: Mapping[str, tuple[Any, str]] = {
    "namespace": (Namespace, ""),
    "context": (Context, ""),
    "kubeconfig": (Kubeconfig, ""),
    "output": (Output, "table"),
}


def on_cluster(command: Callable[Concatenate[Place, P], None]) -> Callable[P, None]:
    """A command with kubectl's own options, which it is given as its first argument, a `Place`."""

    @functools.wraps(command)
    def called(*args: P.args, **kwargs: P.kwargs) -> None:
        place = Place(**{name: kwargs.pop(name) for name in _OPTIONS})  # type: ignore[arg-type]
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


def named(key: ObjectKey) -> str:
    """As messages name an object."""
    return f"{key.namespace}/{key.name}"


def usage(message: str) -> ConfigurationError:
    """An error of whoever gave the command: exit code 2."""
    return ConfigurationError(message)


def note(message: str) -> None:
    """Tells people something that is no part of the output."""
    typer.echo(message, err=True)
