"""`python -m devcluster`: a real Kubernetes of one to three nodes on this machine."""

import os
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from devcluster import apt, binaries, cluster, database_servers, images
from devcluster.errors import DevclusterError, NotRunning
from devcluster.progress import Progress
from devcluster.store import cluster_store
from devcluster.store import commands as store_commands

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)
app.add_typer(images.app, name="image", help="Build and load images.")
app.add_typer(store_commands.app, name="store", help="Run an S3 object store for backups, and break it.")
progress = Progress()

NodeNumber = Annotated[int, typer.Argument(help="1, 2 or 3")]
Component = Annotated[str, typer.Argument(help="as in `status`: kube-apiserver, etcd, kubelet, …")]
NodeOption = Annotated[int | None, typer.Option(help="1, 2 or 3, for a node's components")]
Kill = Annotated[bool, typer.Option("--kill", help="SIGKILL, as in a crash")]
Percent = Annotated[int, typer.Option(min=0, max=100, help="percent")]
FAULTS_PANEL = "Faults, on purpose"


def _print_lines(*lines: str) -> None:
    for line in lines:
        typer.echo(line)


def _environment(status: cluster.ClusterStatus) -> list[str]:
    lines = [f"export KUBECONFIG={status.kubeconfig}"]
    if status.binaries is not None:
        lines += [f"export KUBEBUILDER_ASSETS={status.binaries}", f'export PATH="{status.binaries}:$PATH"']
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy")):
        api_server = cluster.api_server_address()
        no_proxy = os.environ.get("NO_PROXY") or os.environ.get("no_proxy")
        lines.append(f"export NO_PROXY={','.join(part for part in (no_proxy, api_server) if part)}")
    return lines


@app.command()
def up(nodes: Annotated[int | None, typer.Option(min=1, max=3, help="default: as it is, or 2")] = None) -> None:
    """Create, repair, resize or upgrade the cluster."""
    if os.environ.get("CLUSTER") == "current":
        _print_lines("CLUSTER=current: the cluster of your kubeconfig is used, and none is made.")
        return
    status = cluster.up(progress, nodes)
    _print_lines(
        "",
        "All nodes are Ready.",
        f"  kubeconfig  {status.kubeconfig}",
        f"  binaries    {status.binaries}",
        f"  logs        {status.logs}",
        "",
        "Try next:",
        *(f"  {line}" for line in _environment(status)),
        "  kubectl get nodes,pods -A",
    )


@app.command()
def down() -> None:
    """End and remove the cluster and everything it made; caches stay."""
    _print_lines("The cluster is gone." if cluster.down(progress) else "There was no cluster.")
    if cluster_store.load() is not None:
        _print_lines("The object store still runs: `up` attaches it, `store remove` deletes it.")


@app.command()
def status() -> None:
    """Show what runs; exit code 1 if no cluster does."""
    current = cluster.status()
    if not current.running:
        raise NotRunning("No cluster runs. Make one with: devcluster up")
    for name, pid in current.processes.items():
        _print_lines(f"  {name:<40} pid {pid}")
    for name in current.ended:
        _print_lines(f"  {name:<40} ended; `up` starts it again")
    for name in current.disconnected:
        _print_lines(f"  {name:<40} disconnected: run `restore-node`")
    for name, (to, sent) in current.packet_loss.items():
        _print_lines(f"  {name:<40} loses {to} % of the packets to it, {sent} % of those from it")
    if not current.same_version:
        _print_lines("Another version of devcluster made it: `up` replaces it.")


@app.command()
def build() -> None:
    """Build the binaries only; needs Go, but neither root nor Linux."""
    _print_lines(str(binaries.ensure(progress)))


@app.command("packages")
def install_packages(
    names: Annotated[list[str] | None, typer.Argument(help="default: what nodes need")] = None,
) -> None:
    """Install Debian packages that are missing, asking nothing."""
    apt.ensure(progress, tuple(names) if names else apt.NODE_PACKAGES)


@app.command("servers")
def unpack_servers() -> None:
    """Unpack database servers and Prometheus of other Debian releases for tests."""
    _print_lines(*map(str, database_servers.ensure(progress)))


@app.command()
def kubeconfig() -> None:
    """Print the path of the administrator's kubeconfig."""
    _print_lines(str(cluster.kubeconfig_path()))


@app.command()
def metrics() -> None:
    """Add metrics-server to the running cluster, for `kubectl top`."""
    cluster.ensure_metrics(progress)


@app.command()
def env() -> None:
    """Print shell exports for this cluster: eval "$(python -m devcluster env)"."""
    _print_lines(*_environment(cluster.status()))


@app.command(rich_help_panel=FAULTS_PANEL)
def restart(
    component: Component,
    node: NodeOption = None,
    kill: Kill = False,
    downtime: Annotated[float, typer.Option(help="seconds between its end and its start")] = 0,
) -> None:
    """Restart a component, for example: restart kube-apiserver --kill --away 60."""
    with cluster.component_stopped(component, node, graceful=not kill):
        time.sleep(downtime)


@app.command(rich_help_panel=FAULTS_PANEL)
def stop(component: Component, node: NodeOption = None, kill: Kill = False) -> None:
    """Stop a component until `start` or `up`."""
    cluster.stop(component, node, graceful=not kill)


@app.command(rich_help_panel=FAULTS_PANEL)
def start(component: Component, node: NodeOption = None) -> None:
    """Start a stopped component."""
    cluster.start(component, node)


@app.command(rich_help_panel=FAULTS_PANEL)
def set_packet_loss(number: NodeNumber, ingress: Percent = 0, egress: Percent = 0) -> None:
    """Drop packets of a node: set-packet-loss 2 --ingress 100 --egress 30."""
    cluster.set_packet_loss(number, ingress=ingress, egress=egress)


@app.command(rich_help_panel=FAULTS_PANEL)
def disconnect_node(number: NodeNumber) -> None:
    """Disconnect a node from the network; its pods keep running."""
    cluster.disconnect_node(number)


@app.command(rich_help_panel=FAULTS_PANEL)
def crash_node(number: NodeNumber) -> None:
    """Kill all processes of a node at once; its disks stay."""
    cluster.crash_node(number)


@app.command(rich_help_panel=FAULTS_PANEL)
def restore_node(number: NodeNumber) -> None:
    """Reconnect a node, end its packet loss, and boot it."""
    cluster.restore_node(number)


@app.command(rich_help_panel=FAULTS_PANEL, context_settings={"ignore_unknown_options": True})
def execute(
    number: NodeNumber, namespace: str, pod: str, container: str, command: Annotated[list[str], typer.Argument()]
) -> None:
    """Run a command in a container of an unreachable node."""
    typer.echo(cluster.execute(number, namespace, pod, container, command), nl=False)


def main() -> None:
    """Run the command line; report expected errors with exit code 1."""
    try:
        app()
    except DevclusterError as error:
        Console(stderr=True, highlight=False).print(f"[red]✗[/red] {escape(str(error))}")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
