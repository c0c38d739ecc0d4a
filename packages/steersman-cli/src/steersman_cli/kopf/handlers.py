"""Reads handlers from the source of a Kopf operator, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steersman.errors import ConfigurationError
from steersman_cli.kopf.status_fields import returns_value, status_fields

_MAX_FILE_BYTES = 2 * 2**20
_SKIPPED_DIRECTORIES = {"node_modules", "site-packages", "build", "dist", "__pycache__"}
OF_THE_OPERATOR = {"startup", "cleanup", "login", "probe"}
"""Activities without a resource."""
_AT_TOP = {"timer", "daemon", "index"}
_RESOURCE_OPTIONS = {"group", "version", "plural", "kind", "singular", "shortcut", "category"}
_NAMES_OF_KOPF = (
    *("adopt", "append_owner_reference", "harmonize_naming", "event", "info", "warn", "exception"),
    *("TemporaryError", "PermanentError", "HandlerRetryError", "Memo", "execute", "all_", "any_", "not_"),
)


@dataclass(frozen=True)
class ResourceName:
    """Resource that handlers select, as far as the source names it.

    Attributes:
        group: API group; "" for the core group, or if the source does not name one.
        version: "" if the source does not name one.
        name: plural, kind or another name, as in the source.
    """

    group: str
    version: str
    name: str

    def __str__(self) -> str:
        """Return ``name.version.group``, without what is unknown."""
        return ".".join(filter(None, (self.name, self.version, self.group)))

    def selects(self, group: str, names: Collection[str]) -> bool:
        """Return True if a resource with these names is meant. A source without a group means any."""
        return bool(self.name) and self.name in names and self.group in ("", group)


@dataclass(frozen=True)
class KopfHandler:
    """A decorated function.

    Attributes:
        activity: name of the decorator, such as ``create``, ``field`` or ``timer``.
        resource: None for activities of the operator, or if the source computes the names.
        options: source text of the other arguments by name, such as ``interval``.
        parameters: names of the parameters that the function uses.
        kopf_names: functions and errors of Kopf in the body.
        client_calls: names of the functions and methods that the body calls.
        body: source text of the function.
        status_fields: JSON types of the status fields that the body names; "" if unknown.
        returns_value: True if the function returns a value, which Kopf stores in the status.
    """

    activity: str
    resource: ResourceName | None
    function: str
    file: str
    line: int
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    parameters: tuple[str, ...] = ()
    kopf_names: tuple[str, ...] = ()
    client_calls: tuple[str, ...] = ()
    body: str = ""
    status_fields: Mapping[str, str] = field(default_factory=dict[str, str])
    returns_value: bool = False


@dataclass(frozen=True)
class HelperCode:
    """Function, class or module that handlers use."""

    name: str
    file: str
    line: int


def read_helpers(path: Path) -> list[HelperCode]:
    """Return functions and classes without handlers in a file or directory."""
    return [helper for file in _python_files(path) for helper in _parse(file, path).helpers()]


def read_handlers(path: Path) -> list[KopfHandler]:
    """Return the handlers in a file or below a directory.

    Raises:
        ConfigurationError: a file cannot be read, or there is no handler.
    """
    modules = [_parse(file, path) for file in _python_files(path)]
    # Handlers often import the names of their resource. A name with two values in the operator is left out.
    values: dict[str, set[object]] = {}
    for module in modules:
        for name, value in module.constants.items():
            values.setdefault(name, set()).add(value)
    shared = {name: found.pop() for name, found in values.items() if len(found) == 1}
    handlers = [handler for module in modules for handler in module.handlers(shared)]
    if not handlers:
        raise ConfigurationError(f"{path} has no handler of Kopf: give the file or directory of the operator")
    return handlers


def _python_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*.py")):
        parts = file.relative_to(path).parts[:-1]
        if not any(part in _SKIPPED_DIRECTORIES or part.startswith(".") for part in parts):
            yield file


def _parse(file: Path, root: Path) -> _Module:
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise ConfigurationError(f"{file} is larger than {_MAX_FILE_BYTES // 2**20} MiB")
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text, str(file))
    except (OSError, UnicodeDecodeError, SyntaxError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from error
    name = file.name if file == root else str(file.relative_to(root))
    return _Module(tree, text, name)


class _Module:
    """One parsed module.

    Attributes:
        constants: literals that are assigned to names of the module.
    """

    def __init__(self, tree: ast.Module, text: str, file: str) -> None:
        self._tree, self._text, self._file = tree, text, file
        self._aliases = dict(_aliases(tree))
        self._shared: Mapping[str, object] = {}
        self.constants: dict[str, object] = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def handlers(self, shared: Mapping[str, object]) -> Iterator[KopfHandler]:
        """Yield the handlers. ``shared`` are constants of other modules."""
        self._shared = shared
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    if isinstance(decorator, ast.Call) and (activity := self._activity(decorator.func)):
                        yield self._handler(activity, decorator, node)

    def helpers(self) -> Iterator[HelperCode]:
        """Yield the functions and classes of the module that are not handlers."""
        for node in self._tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            calls = [d.func for d in node.decorator_list if isinstance(d, ast.Call)]
            if not any(map(self._activity, calls)):
                yield HelperCode(node.name, self._file, node.lineno)

    def _activity(self, decorator: ast.expr) -> str:
        """Return ``create`` for ``kopf.on.create``, or ""."""
        scope, _, name = self._dotted(decorator).rpartition(".")
        if scope == "kopf.on" or (scope == "kopf" and name in _AT_TOP):
            return name
        return ""

    def _dotted(self, node: ast.expr) -> str:
        """Return an attribute chain with its imported name, such as ``kopf.on.create``."""
        if isinstance(node, ast.Attribute):
            return f"{self._dotted(node.value)}.{node.attr}"
        return self._aliases.get(node.id, node.id) if isinstance(node, ast.Name) else "?"

    def _handler(
        self, activity: str, decorator: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> KopfHandler:
        arguments = function.args
        declared = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
        dotted = {self._dotted(n) for n in ast.walk(function) if isinstance(n, ast.Attribute | ast.Name)}
        calls = [self._dotted(n.func).rpartition(".")[2] for n in ast.walk(function) if isinstance(n, ast.Call)]
        return KopfHandler(
            activity=activity,
            resource=None if activity in OF_THE_OPERATOR else self._resource(decorator),
            function=function.name,
            file=self._file,
            line=function.lineno,
            options={
                keyword.arg: ast.unparse(keyword.value)
                for keyword in decorator.keywords
                if keyword.arg and keyword.arg not in _RESOURCE_OPTIONS
            },
            parameters=tuple(sorted(declared & used)),
            kopf_names=tuple(name for name in _NAMES_OF_KOPF if f"kopf.{name}" in dotted),
            client_calls=tuple(dict.fromkeys(calls)),
            body=ast.get_source_segment(self._text, function) or "",
            status_fields=status_fields(function),
            returns_value=returns_value(function),
        )

    def _resource(self, decorator: ast.Call) -> ResourceName | None:
        words = [self._constant(argument) for argument in decorator.args]
        named = {k.arg: self._constant(k.value) for k in decorator.keywords if k.arg in _RESOURCE_OPTIONS}
        if any(word is None for word in (*words, *named.values())):
            return None
        texts = [word for word in words if word is not None]
        *where, name = texts or [""]
        group, version = (where[0], where[1]) if len(where) > 1 else _split_api_version(where[0] if where else "")
        if not where and "." in name:
            name, group, version = _split_dotted(name)
        name = next(
            (named[key] for key in ("plural", "kind", "singular", "shortcut", "category") if named.get(key)), name
        )
        group, version = named.get("group") or group, named.get("version") or version
        return ResourceName(group or "", version or "", name or "") if name else None

    def _constant(self, node: ast.expr) -> str | None:
        """Return the text of a literal or of a module's constant."""
        value: object = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            value = self.constants.get(node.id, self._shared.get(node.id))
        elif isinstance(node, ast.Attribute):
            value = self._shared.get(node.attr)
        return value if isinstance(value, str) else None


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the names of Kopf and its parts in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((name.asname or name.name, name.name) for name in node.names if name.name == "kopf")
        elif isinstance(node, ast.ImportFrom) and node.module in ("kopf", "kopf.on"):
            yield from ((name.asname or name.name, f"{node.module}.{name.name}") for name in node.names)


def parse_resource(text: str) -> ResourceName:
    """Parse ``plural.group`` or ``plural.version.group``."""
    name, group, version = _split_dotted(text)
    return ResourceName(group, version, name)


def _split_api_version(text: str) -> tuple[str, str]:
    """Split ``group/version``. The core group has a version only."""
    group, slash, version = text.rpartition("/")
    return (group, version) if slash or _is_version(version) else (version, "")


def _split_dotted(text: str) -> tuple[str, str, str]:
    """Split ``plural.version.group`` or ``plural.group``."""
    name, _, rest = text.partition(".")
    version, _, group = rest.partition(".")
    return (name, group, version) if _is_version(version) and group else (name, rest, "")


def _is_version(text: str) -> bool:
    return text[:1] == "v" and text[1:2].isdigit()
