"""What these tests share."""

from packaged import installation, webhooked

__all__ = ["installation", "webhooked"]
