"""A project: its PROJECT file, as kubebuilder has it, and ``[tool.steersman]`` in its pyproject.toml."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import yaml

from steersman.errors import ConfigurationError
from steersman.meta.manifests import Manifest, load_manifests
from steersman_cli.packaging import OperatorManifests

if TYPE_CHECKING:
    from steersman.client import HttpRequest
    from steersman.manager import Manager, ManagerOptions
    from steersman.webhook import WebhookServerOptions

PROJECT_FILE = "PROJECT"
PROJECT_LAYOUT = "steersman.dev/v1"


@dataclass(frozen=True)
class Project:
    """One project.

    Attributes:
        root: its directory.
        content: of the PROJECT file.
        settings: ``[tool.steersman]``.
    """

    root: Path
    content: dict[str, Any]
    settings: dict[str, Any]

    @classmethod
    def from_working_directory(cls) -> Project:
        """The project around the current directory. Raises ConfigurationError: there is none."""
        start = Path.cwd()
        for root in (start, *start.parents):
            if (root / PROJECT_FILE).is_file() and (root / "pyproject.toml").is_file():
                return cls.load(root)
        raise ConfigurationError(
            f"no {PROJECT_FILE} file here or above: this is no project; `steersman init` makes one"
        )

    @classmethod
    def load(cls, root: Path) -> Project:
        """The project in ``root``. Raises ConfigurationError: a file cannot be read."""
        try:
            content: Any = yaml.safe_load((root / PROJECT_FILE).read_text())
            settings = tomllib.loads((root / "pyproject.toml").read_text()).get("tool", {}).get("steersman", {})
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise ConfigurationError(f"cannot read the project in {root}: {error}") from error
        if not isinstance(content, dict) or content.get("layout") != [PROJECT_LAYOUT]:  # pyright: ignore[reportUnknownMemberType]
            raise ConfigurationError(f"{root / PROJECT_FILE} is not of the layout {PROJECT_LAYOUT}")
        if "setup" not in settings:
            raise ConfigurationError('pyproject.toml has no setup in [tool.steersman], such as "shop.main:setup"')
        return cls(root, cast("dict[str, Any]", content), settings)

    @property
    def name(self) -> str:
        """Of the operator: its deployment, its roles, its Lease."""
        return self.content["projectName"]

    @property
    def namespace(self) -> str:
        """Where it is deployed."""
        return f"{self.name}-system"

    @property
    def domain(self) -> str:
        """What API groups end in."""
        return self.content["domain"]

    @property
    def package(self) -> str:
        """The Python package."""
        return str(self.settings["setup"]).partition(".")[0].partition(":")[0]

    @property
    def role_name(self) -> str:
        """Of the ClusterRole of what the controllers declared."""
        return self.settings.get("role-name", f"{self.name}-manager-role")

    @property
    def resources(self) -> list[dict[str, Any]]:
        """What ``create api`` and ``create webhook`` made."""
        return self.content.setdefault("resources", [])

    def find_resource(self, group: str, version: str, kind: str) -> dict[str, Any] | None:
        """The entry of a kind, if there is one."""
        key = (group, version, kind)
        return next((r for r in self.resources if (r.get("group", ""), r["version"], r["kind"]) == key), None)

    def installation(self) -> OperatorManifests:
        """What config/ deploys. Raises ConfigurationError: kubectl or kustomize cannot put it together."""
        return OperatorManifests.read(self.root / "config", self.name)

    def save(self) -> None:
        """Writes the PROJECT file."""
        (self.root / PROJECT_FILE).write_text(to_project_yaml(self.content))

    def crd_manifests(self) -> list[Manifest]:
        """Those in config/crd/bases that clusters of today take. Raises ConfigurationError: a file cannot be read."""
        bases = self.root / "config" / "crd" / "bases"
        found = load_manifests(bases, ("CustomResourceDefinition",)) if bases.is_dir() else []
        return [m for m in found if m["apiVersion"] == "apiextensions.k8s.io/v1"]

    # The code

    def add_to_sys_path(self) -> None:
        """Makes the project's own package importable, whether or not it is installed."""
        if (source := str(self.root / "src")) not in sys.path:
            sys.path.insert(0, source)

    def load_setup(self) -> Callable[[Manager], None]:
        """What declares controllers and webhooks. Raises ConfigurationError: it is not where pyproject.toml says."""
        return self._load_setting("setup")

    def load_webhook_serving(self) -> WebhookServerOptions | None:
        """Where webhooks are served. Raises as ``setup``."""
        return self._load_setting("webhooks") if "webhooks" in self.settings else None

    def _load_setting(self, setting: str) -> Any:
        self.add_to_sys_path()
        reference = str(self.settings[setting])
        module, _, name = reference.partition(":")
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise ConfigurationError(f"{module} needs {error.name}, which is not installed here") from error
            raise ConfigurationError(f"[tool.steersman] {setting}: there is no module {module}") from None
        except AttributeError:
            raise ConfigurationError(f"[tool.steersman] {setting}: {module} has no {name!r}") from None


def to_project_yaml(content: dict[str, Any]) -> str:
    """The text of a PROJECT file."""
    return f"# What `steersman` knows of this project. Commands read and write it.\n{yaml.safe_dump(content)}"


def load_manager(setup: Callable[[Manager], None], options: ManagerOptions | None = None) -> Manager:
    """A manager that was set up, and sends nothing. Raises ConfigurationError: ``setup`` sends something."""
    from steersman.manager import Manager

    manager = Manager(_OfflineTransport(), options)
    setup(manager)
    return manager


class _OfflineTransport:
    """Stands where a transport is asked for and none is used."""

    async def request(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"setup must declare, and not send {request.method} {request.path}")

    def stream(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"setup must declare, and not watch {request.path}")

    async def close(self) -> None:
        return
