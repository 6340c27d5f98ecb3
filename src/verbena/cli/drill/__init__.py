"""`verbena failover-drill` without a running node: between two processes that it starts itself."""
