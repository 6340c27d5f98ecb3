"""`verbena failover-drill` without a running node: two processes of its own."""
