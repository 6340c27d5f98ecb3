"""The metrics of a store at /metrics of its node: what is collected (snapshot, collect), the table of metrics
(table, and a file for each group of rows), and their text (store_metrics).
This file imports nothing, so that tools/reference.py can import the table without the rest of the store.
Metrics of sessions and wires are in transport.observe, on which this may depend."""
