"""Commands about the load of servers: `why`, `top` and `advise`."""
