"""What Go builds for tests, made before they start: a compiler takes longer than a test may."""

from __future__ import annotations

from devcluster import tools
from devcluster.progress import Progress
from framework_support import crd_foreign, olm_bundles, workflow_rules
from framework_support.crd_twins import controller_gen

if __name__ == "__main__":
    tools.helm(Progress())
    workflow_rules.program()
    olm_bundles.program()
    crd_foreign.written()
    controller_gen.kept_by_v1beta1(next(iter(controller_gen.generated().values())))
