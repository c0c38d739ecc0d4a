"""Types for server-side apply. One module per API group, imported as a namespace.

::

    from steersman.api.apply import apps, core, meta

    apps.Deployment(metadata=meta.ObjectMeta(name="web"), spec=apps.DeploymentSpec(replicas=3))

A module has the preferred version of its group. Other versions have it in the name, such as ``autoscaling_v1``.

Classes have the names of Kubernetes, as the read types do. Do not import them one by one: ``Deployment`` alone is the
read type.

A request contains only the fields that were set. Fields of other managers, such as ``replicas`` of an autoscaler,
keep their owner.
"""
