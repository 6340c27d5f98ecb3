"""What operators see of a node: metrics, status, page, log, capture."""
