"""Metrics of a node: values (counters, ledger), the table of metrics (table), Prometheus text (prometheus),
status page (page) and HTTP server (endpoint).
This file imports nothing: the reference page is generated from the table before native code is built."""
