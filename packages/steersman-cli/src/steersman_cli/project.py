"""A project: its PROJECT file, in kubebuilder's format, and ``[tool.steersman]`` in pyproject.toml."""

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
from steersman_cli.packaging import OperatorManifests
from steersman_manifests.manifest_files import Manifest, load_manifests

if TYPE_CHECKING:
    from steersman.client import HttpRequest
    from steersman.manager import Manager, ManagerOptions
    from steersman.webhook import WebhookServerOptions

PROJECT_FILE = "PROJECT"
PROJECT_LAYOUT = "steersman.dev/v1"


@dataclass(frozen=True)
class Project:
    """A project.

    Attributes:
        root: directory of the project.
        content: content of the PROJECT file.
        settings: table ``[tool.steersman]`` of pyproject.toml.
    """

    root: Path
    content: dict[str, Any]
    settings: dict[str, Any]

    @classmethod
    def from_working_directory(cls) -> Project:
        """Return the project of the working directory or its nearest parent.

        Raises:
            ConfigurationError: there is no project.
        """
        start = Path.cwd()
        for root in (start, *start.parents):
            if (root / PROJECT_FILE).is_file() and (root / "pyproject.toml").is_file():
                return cls.load(root)
        raise ConfigurationError(
            f"no {PROJECT_FILE} file in this directory or its parents: create a project with `steersman init`"
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
            raise ConfigurationError(f"{root / PROJECT_FILE} does not have the layout {PROJECT_LAYOUT}")
        if "setup" not in settings:
            raise ConfigurationError('pyproject.toml has no setup in [tool.steersman], such as "shop.main:setup"')
        return cls(root, cast("dict[str, Any]", content), settings)

    @property
    def name(self) -> str:
        """Name of the operator, its Deployment, its roles and its Lease."""
        return self.content["projectName"]

    @property
    def namespace(self) -> str:
        """Namespace of the operator."""
        return f"{self.name}-system"

    @property
    def domain(self) -> str:
        """Domain of the API groups."""
        return self.content["domain"]

    @property
    def package(self) -> str:
        """Name of the Python package."""
        return str(self.settings["setup"]).partition(".")[0].partition(":")[0]

    @property
    def role_name(self) -> str:
        """Name of the generated ClusterRole."""
        return self.settings.get("role-name", f"{self.name}-manager-role")

    @property
    def resources(self) -> list[dict[str, Any]]:
        """Entries of ``create api`` and ``create webhook`` in PROJECT."""
        return self.content.setdefault("resources", [])

    def find_resource(self, group: str, version: str, kind: str) -> dict[str, Any] | None:
        """Return the entry of a kind, or None."""
        key = (group, version, kind)
        return next((r for r in self.resources if (r.get("group", ""), r["version"], r["kind"]) == key), None)

    def installation(self) -> OperatorManifests:
        """Build the manifests in config/.

        Raises:
            ConfigurationError: kubectl and kustomize are missing, or the build failed.
        """
        return OperatorManifests.read(self.root / "config", self.name)

    def save(self) -> None:
        """Write the PROJECT file."""
        (self.root / PROJECT_FILE).write_text(to_project_yaml(self.content))

    def crd_manifests(self) -> list[Manifest]:
        """Return the CRDs of v1 in config/crd/bases.

        Raises:
            ConfigurationError: a file cannot be read.
        """
        bases = self.root / "config" / "crd" / "bases"
        found = load_manifests(bases, ("CustomResourceDefinition",)) if bases.is_dir() else []
        return [m for m in found if m["apiVersion"] == "apiextensions.k8s.io/v1"]

    def webhook_manifests(self) -> list[Manifest]:
        """Return the webhook configurations in config/webhook.

        Raises:
            ConfigurationError: the file cannot be read.
        """
        file = self.root / "config" / "webhook" / "manifests.yaml"
        kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        return load_manifests(file, kinds) if file.is_file() else []

    # The code

    def add_to_sys_path(self) -> None:
        """Make the package importable, even if it is not installed."""
        if (source := str(self.root / "src")) not in sys.path:
            sys.path.insert(0, source)

    def load_setup(self) -> Callable[[Manager], None]:
        """Return the function that registers controllers and webhooks.

        Raises:
            ConfigurationError: the reference in pyproject.toml is invalid.
        """
        return self._load_setting("setup")

    def load_webhook_serving(self) -> WebhookServerOptions | None:
        """Return the webhook server options, or None.

        Raises:
            ConfigurationError: the reference in pyproject.toml is invalid.
        """
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
    """Return the text of a PROJECT file."""
    return f"# Metadata of the project for `steersman`, which reads and writes it.\n{yaml.safe_dump(content)}"


def load_manager(setup: Callable[[Manager], None], options: ManagerOptions | None = None) -> Manager:
    """Return a manager after ``setup``. It sends no requests.

    Raises:
        ConfigurationError: ``setup`` sends a request.
    """
    from steersman.manager import Manager

    manager = Manager(_OfflineTransport(), options)
    setup(manager)
    return manager


class _OfflineTransport:
    """Transport that rejects all requests."""

    async def request(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"setup must not send requests, but it sends {request.method} {request.path}")

    def stream(self, request: HttpRequest) -> NoReturn:
        raise ConfigurationError(f"setup must not send requests, but it watches {request.path}")

    async def close(self) -> None:
        return
