"""Builds the Go programs of the tests before they start."""

from __future__ import annotations

from devcluster import tools
from devcluster.progress import Progress
from framework_support import actionlint, crd_foreign, kstatus, olm_validator
from framework_support.crd_twins import controller_gen

if __name__ == "__main__":
    tools.helm(Progress())
    actionlint.program()
    olm_validator.program()
    kstatus.program()
    crd_foreign.written()
    controller_gen.kept_by_v1beta1(next(iter(controller_gen.generated().values())))
