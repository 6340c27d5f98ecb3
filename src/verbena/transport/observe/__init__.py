"""Observation of a node: metrics, status, status page, log, packet capture."""
