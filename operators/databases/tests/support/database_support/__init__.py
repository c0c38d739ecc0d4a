"""Support code that the tests of the database operator share."""
