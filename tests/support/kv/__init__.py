"""Stores, clusters and fault injection for the tests of the key-value store."""
