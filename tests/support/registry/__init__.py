"""Registries, nodes and buckets for the tests of the registry."""
