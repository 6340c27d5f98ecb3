"""Peers, links and devices for the tests of the wires."""
