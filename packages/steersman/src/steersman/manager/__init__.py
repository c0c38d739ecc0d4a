"""The manager runs an operator's process.

A ``Manager`` owns the cache, the controllers, the webhooks and the endpoints for probes, metrics and debugging. It
starts them in order, and stops them in reverse order on SIGTERM. With ``LeaderElection``, one replica runs the
controllers and the others are on standby with a warm cache. ``ManagerOptions`` has all settings.
``steersman.manager.flags`` sets them from the command line, with the flags of kubebuilder.
"""

from steersman.manager.leader_election import LeaderElection
from steersman.manager.manager import Manager
from steersman.manager.options import ManagerOptions
from steersman.manager.serving.endpoints import ProbeServer

__all__ = ["LeaderElection", "Manager", "ManagerOptions", "ProbeServer"]
