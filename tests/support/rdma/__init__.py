"""Peers, links and devices for tests of the wires."""
