"""Operator with controller and webhook that depends on ``steersman`` only."""

from __future__ import annotations

import sys

import msgspec

from steersman import Manager, Request, RequestReconciler, Resource, Result, Spec, Status, resource
from steersman.manager.flags import ManagerFlags
from steersman.webhook import WebhookServerOptions

NAMESPACE = "default"


class WidgetSpec(Spec):
    size: int | None = None


class WidgetStatus(Status):
    size: int | None = None


@resource(group="packaging.example.com", version="v1")
class Widget(Resource[WidgetSpec, WidgetStatus]):
    """A Widget."""


class WidgetReconciler(RequestReconciler[Widget]):
    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        await self.client.apply_status(widget, WidgetStatus(size=widget.spec.size))
        return Result()


def default(widget: Widget) -> Widget:
    return msgspec.structs.replace(widget, spec=WidgetSpec(size=widget.spec.size or 3))


def webhook_options(bind_address: str = ":9443", cert_path: str = "") -> WebhookServerOptions:
    return WebhookServerOptions(
        service="widgets", namespace=NAMESPACE, bind_address=bind_address, cert_path=cert_path
    )


def setup(manager: Manager) -> None:
    manager.controller(Widget).complete(WidgetReconciler)
    manager.webhook(Widget).defaults(default)


def main(bind_address: str, cert_path: str, kubeconfig: str) -> None:
    """Run the operator until SIGTERM."""
    flags = ManagerFlags(kubeconfig=kubeconfig, metrics_bind_address="0", health_probe_bind_address="0")
    flags.run(setup, name="widgets", webhooks=webhook_options(bind_address, cert_path))


if __name__ == "__main__":
    main(*sys.argv[1:])
