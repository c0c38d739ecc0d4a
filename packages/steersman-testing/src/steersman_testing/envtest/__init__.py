"""envtest: a real etcd and kube-apiserver for tests.

::

    with Envtest.start() as environment:
        environment.install_crds(Greeting)
        operator = environment.user("operator", roles=[cluster_role("operator", manager.permissions)])

The processes start in a few seconds. There is no controller manager, scheduler or kubelet: garbage is not collected,
and Deployments create no pods. Modelled on controller-runtime's ``envtest``. It uses the same binaries and the
environment variables ``KUBEBUILDER_ASSETS`` and ``USE_EXISTING_CLUSTER``.

On Linux the kernel kills the processes when the test process ends. On other systems they survive a killed test run.
"""

from steersman_testing.envtest.binaries import find_binaries
from steersman_testing.envtest.control_plane import ControlPlane
from steersman_testing.envtest.environment import AuthenticatedUser, Envtest
from steersman_testing.envtest.second_apiserver import SecondApiServer
from steersman_testing.envtest.webhooks import LocalWebhookServing

__all__ = ["AuthenticatedUser", "ControlPlane", "Envtest", "LocalWebhookServing", "SecondApiServer", "find_binaries"]
