"""Discovery endpoints of the in-memory API server, such as ``/apis``."""
