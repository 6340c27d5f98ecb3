"""What the tests of all layers share: connected pairs, bounded waits, peer processes, the conformance matrix.
Gives plain functions and values; conftest.py turns the common ones into fixtures.
May use the public API only."""
