"""`python -m verbena` is the command `verbena`."""

import sys

from verbena.cli import main

sys.exit(main())
