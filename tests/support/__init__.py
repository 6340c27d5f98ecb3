"""Helpers that the tests of all layers share: connected pairs, bounded waits, peer processes, the conformance
matrix. Gives plain functions and values; conftest.py makes fixtures of the common ones.
May use the public API only."""
