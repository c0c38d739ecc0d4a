"""Support code that the tests of the framework's packages share."""
