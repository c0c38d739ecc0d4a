"""What to send in server-side apply: ``DeploymentApply`` for ``Deployment``, and so on, one module a group-version.

Only what was set travels, so that fields of others (an autoscaler's ``replicas``) are not seized.
"""
