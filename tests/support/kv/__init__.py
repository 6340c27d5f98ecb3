"""Stores, clusters and their faults for tests of the key-value store."""
