"""What a bundle says that no code says: ``[tool.steersman.bundle]`` in a project's ``pyproject.toml``."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from steersman.errors import ConfigurationError

InstallMode = Literal["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
INSTALL_MODES: tuple[InstallMode, ...] = ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
ALL_NAMESPACES: tuple[InstallMode, ...] = ("AllNamespaces",)

Capabilities = Literal["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"]


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who publishes the operator."""

    name: str
    url: str = ""


class BundleSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The settings. Sources: OLM, "ClusterServiceVersion"; OperatorHub, "Required fields".

    Attributes:
        package: by which catalogs know the operator; the project's name unless told.
        display_name: for people; the project's name in words unless told.
        image: the operator's, in a registry.
        description: in Markdown, or the name of a file of it that ends in ``.md``; the project's unless told.
        capabilities: the level of the operator.
        categories: under which OperatorHub shows it.
        maturity: such as ``alpha`` or ``stable``.
        icon: a file: SVG, PNG, JPEG or GIF.
        provider: the first maintainer, or the domain, unless told.
        channels: in which this version appears.
        default_channel: of new subscriptions; the first unless told.
        install_modes: those that the operator supports; all, or ``AllNamespaces`` with conversions, unless told.
        min_kube_version: the oldest Kubernetes.
        architectures: of the image.
        replaces: the name of the bundle that this one takes the place of.
        skips: names of bundles that are passed over.
        skip_range: versions that are passed over, such as ``<0.3.0``.
        display_names: of kinds, where the words of their name do not do.
        annotations: more of them, such as ``repository``, ``support`` and ``createdAt``.
        scorecard_image: of the tests of ``operator-sdk scorecard``.
        spec: joined into the spec of the ClusterServiceVersion at the end, for what has no setting here.
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
        """Those of a table of TOML. Raises ConfigurationError: it says what no setting is."""
        try:
            return msgspec.convert(table, cls)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"[tool.steersman.bundle]: {error}") from error
