"""Query about event triggers that prevent a statement."""

FAILED_TRIGGERS_QUERY = """
    SELECT evtname FROM pg_catalog.pg_event_trigger
    WHERE evtenabled <> 'D'
        AND pg_catalog.strpos(%s, 'function ' || evtfoid::pg_catalog.regprocedure::pg_catalog.text || ' ') > 0
    ORDER BY evtname
"""
"""Event triggers whose function is in the context of an error."""
