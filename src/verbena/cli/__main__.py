"""Runs the command as `python -m verbena.cli`."""

import sys

from verbena.cli.app import main

sys.exit(main())
