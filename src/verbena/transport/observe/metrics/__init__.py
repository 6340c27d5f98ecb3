"""Metrics of a node: values (counters, node_totals), the table of metrics (table), Prometheus text
(prometheus), status page (page) and HTTP server (endpoint).
This file imports nothing, so that tools/reference.py can import the table without the rest of transport. May
not depend on a service."""
