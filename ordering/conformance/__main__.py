"""``python -m ordering.conformance``: see :mod:`ordering.conformance.kit`."""

import sys

from ordering.conformance.kit import main

if __name__ == "__main__":
    sys.exit(main())
