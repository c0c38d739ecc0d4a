"""The real API server without a cluster: etcd and kube-apiserver, started for tests in a few seconds.

    with Envtest.start() as environment:
        config = load_config(environment.kubeconfig)

Nothing else of Kubernetes runs: no controller manager (nobody collects garbage or empties namespaces), no scheduler,
no kubelet. Modelled on controller-runtime's ``envtest``, whose binaries and ``KUBEBUILDER_ASSETS`` it uses.

Needs the extra ``steersman[testing]``.
"""

from steersman.testing.envtest.environment import Envtest, find_binaries
from steersman.testing.envtest.second import SecondApiServer

__all__ = ["Envtest", "SecondApiServer", "find_binaries"]
