"""What every test shares: how hard Hypothesis tries. ``HYPOTHESIS_PROFILE=deep`` is for a night, ``ci`` for each change."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", max_examples=150, deadline=None, print_blob=True)
settings.register_profile("deep", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
