"""What these tests share."""

from framework_support.packaged import installation, webhooked

__all__ = ["installation", "webhooked"]
