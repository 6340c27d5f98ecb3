"""`verbena failover-drill` without a running node: between two processes that it starts itself.
May depend on verbena.transport and below, not on a service."""
