"""The arrays that columns are made of. Microseconds, offsets, numbers and row indices are 64 bits wide everywhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
