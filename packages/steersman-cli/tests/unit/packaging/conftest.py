"""What these tests share."""

from framework_support.packaged_operator import installation, webhook_project

__all__ = ["installation", "webhook_project"]
