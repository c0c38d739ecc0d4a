"""Load of an instance in the last hour and day."""
