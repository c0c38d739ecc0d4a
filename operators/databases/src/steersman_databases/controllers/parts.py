"""What the controller of clusters needs of an engine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from steersman_databases.controllers.accounts import Furnish
from steersman_databases.controllers.outpaced import AskLog
from steersman_databases.controllers.patience import Patience
from steersman_databases.controllers.poolers import Console
from steersman_databases.controllers.serving import Ask
from steersman_databases.controllers.settings import AskSettings, TakeBack, TryOut
from steersman_databases.controllers.upgrades import AskInUse
from steersman_databases.engines.cluster import CLUSTER_DOMAIN, ClusterEngine
from steersman_databases.engines.topology import Topology


@dataclass(frozen=True, slots=True)
class ClusterParts:
    """The engine, and how its servers are asked.

    Attributes:
        shown: asks a server for its certificate; None where nobody does.
        console: has a pooler do something, likewise.
        settings: asks a server for its parameters, likewise.
        furnish: has a primary have the cluster's own accounts, likewise.
        in_use: asks a primary what its databases have, likewise.
        take_back: has a server forget what somebody set there, likewise.
        try_out: has a server try parameters, likewise.
        log_is_gone: asks a primary for what a replica would go on from, likewise.
        cluster_domain: the DNS domain of Kubernetes' own names.
        operator_namespace: where this process runs; empty where nobody knows, as outside of a pod.
    """

    engine: ClusterEngine
    topology: Topology
    shown: Ask | None = None
    console: Console | None = None
    settings: AskSettings | None = None
    furnish: Furnish | None = None
    in_use: AskInUse | None = None
    take_back: TakeBack | None = None
    log_is_gone: AskLog | None = None
    try_out: TryOut | None = None
    cluster_domain: str = CLUSTER_DOMAIN
    operator_namespace: str = ""

    def asked_with(self, patience: Patience) -> ClusterParts:
        """The same, where nobody waits again and again for a server that hangs.

        But for poolers, whose clients wait until these are told to go on.
        """
        return replace(
            self,
            shown=patience.asking_what_is_shown(self.shown),
            settings=patience.asking(self.settings),
            furnish=patience.asking(self.furnish),
            in_use=patience.asking(self.in_use),
            take_back=patience.asking(self.take_back),
            log_is_gone=patience.asking(self.log_is_gone),
            try_out=patience.asking(self.try_out),
        )
