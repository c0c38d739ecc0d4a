"""Exceptions of the devcluster; DevclusterError is the base class of all others."""


class DevclusterError(Exception):
    """Base class of errors that users can act on."""


class Unsupported(DevclusterError):
    """This system cannot run the cluster."""


class CommandFailed(DevclusterError):
    """A command ended with a status other than 0."""


class NotReady(DevclusterError):
    """A component did not become ready in its time."""


class NotRunning(DevclusterError):
    """There is no running cluster."""
