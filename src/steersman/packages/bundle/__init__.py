"""Bundles, by which the Operator Lifecycle Manager installs operators."""

from steersman.packages.bundle.files import Bundle, bundle
from steersman.packages.bundle.operator import Operator
from steersman.packages.bundle.settings import INSTALL_MODES, BundleSettings, InstallMode, Provider

__all__ = ["INSTALL_MODES", "Bundle", "BundleSettings", "InstallMode", "Operator", "Provider", "bundle"]
