"""``python -m ordering.conformance``: see :mod:`ordering.conformance.command`."""

import sys

from ordering.conformance.command import main

if __name__ == "__main__":
    sys.exit(main())
