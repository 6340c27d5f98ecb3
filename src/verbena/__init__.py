"""RDMA for Python: one verbs model on every wire."""

from importlib.metadata import version

from verbena import errors, verbs

__all__ = ["__version__", "errors", "verbs"]

__version__ = version("verbena")
