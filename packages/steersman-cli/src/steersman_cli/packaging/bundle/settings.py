"""Settings of a bundle: ``[tool.steersman.bundle]`` in ``pyproject.toml``."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from steersman.errors import ConfigurationError

InstallMode = Literal["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
INSTALL_MODES: tuple[InstallMode, ...] = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
ALL_NAMESPACES: tuple[InstallMode, ...] = ("AllNamespaces",)

Capabilities = Literal["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"]


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Publisher of the operator."""

    name: str
    url: str = ""


class BundleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Settings of a bundle.

    Sources: OLM, "ClusterServiceVersion"; OperatorHub, "Required fields".

    Attributes:
        package: package name in catalogs. Defaults to the name of the project.
        display_name: displayed name. Defaults to the name of the project as words.
        image: image of the operator.
        description: Markdown, or the name of an ``.md`` file. Defaults to the description of the project.
        capabilities: capability level of the operator.
        categories: categories of OperatorHub.
        maturity: maturity, such as ``alpha`` or ``stable``.
        icon: name of an SVG, PNG, JPEG or GIF file.
        provider: publisher. Defaults to the first maintainer, or to the domain.
        channels: channels of this version.
        default_channel: channel of new subscriptions. Defaults to the first channel.
        install_modes: supported install modes. Defaults to all; with conversion webhooks, to ``AllNamespaces``.
        min_kube_version: oldest supported version of Kubernetes.
        architectures: architectures of the image.
        replaces: name of the bundle that this one replaces.
        skips: names of bundles that upgrades skip.
        skip_range: versions that upgrades skip, such as ``<0.3.0``.
        display_names: displayed names of kinds. Default to their names as words.
        annotations: further annotations, such as ``repository``, ``support`` and ``createdAt``.
        scorecard_image: image of the tests of ``operator-sdk scorecard``.
        spec: overrides of the ClusterServiceVersion's spec, for fields without a setting.
    """

    package: str = ""
    display_name: str = ""
    image: str = ""
    description: str = ""
    capabilities: Capabilities = "Basic Install"
    categories: tuple[str, ...] = ()
    maturity: str = "alpha"
    icon: str = ""
    provider: Provider | None = None
    channels: tuple[str, ...] = ("candidate",)
    default_channel: str = ""
    install_modes: tuple[InstallMode, ...] = ()
    min_kube_version: str = "1.30.0"
    architectures: tuple[str, ...] = ("amd64", "arm64")
    replaces: str = ""
    skips: tuple[str, ...] = ()
    skip_range: str = ""
    display_names: dict[str, str] = {}
    annotations: dict[str, str] = {}
    scorecard_image: str = "quay.io/operator-framework/scorecard-test:v1.42.0"
    spec: dict[str, Any] = {}

    @classmethod
    def from_toml(cls, table: dict[str, Any]) -> BundleSettings:
        """Convert a TOML table.

        Raises:
            ConfigurationError: the table has an unknown or invalid setting.
        """
        try:
            return msgspec.convert(table, cls)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"[tool.steersman.bundle]: {error}") from error
