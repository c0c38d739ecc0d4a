"""The archive of binary logs: collecting, storing and replaying them."""
