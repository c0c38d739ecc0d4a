"""The real API server without a cluster: etcd and kube-apiserver, started for tests in a few seconds.

    with Envtest.start() as environment:
        environment.install_crds(Greeting)
        operator = environment.user("operator", roles=[cluster_role("operator", manager.permissions)])

Nothing else of Kubernetes runs: no controller manager (nobody collects garbage or rolls out Deployments), no
scheduler, no kubelet. Modelled on controller-runtime's ``envtest``, whose binaries and variables it uses:
``KUBEBUILDER_ASSETS`` and ``USE_EXISTING_CLUSTER``.

On Linux no process outlives the tests, however they end; elsewhere those of tests that were killed go on.

Needs the extra ``steersman[testing]``.
"""

from steersman_testing.envtest.binaries import find_binaries
from steersman_testing.envtest.control_plane import ControlPlane
from steersman_testing.envtest.environment import AuthenticatedUser, Envtest
from steersman_testing.envtest.second_apiserver import SecondApiServer
from steersman_testing.envtest.webhooks import LocalWebhookServing

__all__ = ["AuthenticatedUser", "ControlPlane", "Envtest", "LocalWebhookServing", "SecondApiServer", "find_binaries"]
