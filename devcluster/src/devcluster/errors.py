"""What can go wrong, as one tree.

DevclusterError
├── Unsupported     this system cannot run the cluster; the message says what still works
├── CommandFailed   a command that was run for us failed; carries its output
├── NotReady        something did not get ready in its time; names its log file
└── NotRunning      asked for something that needs a running cluster
"""


class DevclusterError(Exception):
    """Any failure that a person can act on; its text is made to be shown as it is."""


class Unsupported(DevclusterError):
    """This system cannot run the cluster."""


class CommandFailed(DevclusterError):
    """A command ended with a status other than 0."""


class NotReady(DevclusterError):
    """A component did not become ready in its time."""


class NotRunning(DevclusterError):
    """There is no running cluster."""
