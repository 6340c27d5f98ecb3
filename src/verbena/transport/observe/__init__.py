"""Observation of a node: metrics, status, status page, log, packet capture.
May not depend on transport.failover or transport.listening."""
