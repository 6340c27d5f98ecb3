"""Registries, nodes and buckets for tests of the registry."""
