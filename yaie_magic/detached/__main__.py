"""`python -m yaie_magic.detached`: the process of a detached engine. Started by `%yaie load MODEL --detached`."""

from __future__ import annotations

import sys

from .host import main

if __name__ == "__main__":
    sys.exit(main())
