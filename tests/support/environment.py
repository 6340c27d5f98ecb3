"""The environment of a test's own programs."""

from __future__ import annotations

import os
import sys


def with_modules() -> dict[str, str]:
    """Returns an environment in which a program can import the package and the support code."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
