"""Types for server-side apply, such as ``DeploymentApply``. One module per group-version.

A request contains only the fields that were set. Fields of other managers, such as ``replicas`` of an autoscaler,
keep their owner.
"""
