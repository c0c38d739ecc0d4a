"""Bundles for the Operator Lifecycle Manager (OLM)."""

from steersman_cli.packaging.bundle.files import Bundle, build_bundle
from steersman_cli.packaging.bundle.operator_info import OperatorInfo
from steersman_cli.packaging.bundle.settings import INSTALL_MODES, BundleSettings, InstallMode, Provider

__all__ = ["INSTALL_MODES", "Bundle", "BundleSettings", "InstallMode", "OperatorInfo", "Provider", "build_bundle"]
