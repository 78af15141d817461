"""
Take the picture of the front page: *Time* over the flights, in a real Chromium.

Usage: make demo KEEP=1, then python docs/pictures/page.py [FILE]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))

from support.browser import Watched, open_browser  # noqa: E402 - the tests' browser

BYTES_MAX = 200_000


def main() -> int:
    """Write the picture; fail if the page complains of anything, or shows no events."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "time.png"
    address = json.loads(Path(".tidegate/demo/page.json").read_text())["address"]
    with open_browser() as browser:
        tab = Watched.open(browser, address, width=1100, height=720)
        page = tab.go("/time?name=flights")
        page.get_by_text("in order: ").wait_for()
        page.screenshot(path=file)
        tab.close()
    print(f"{file}: {file.stat().st_size:,} bytes", *tab.complaints, sep="\n")
    return 1 if tab.complaints or file.stat().st_size > BYTES_MAX else 0


if __name__ == "__main__":
    sys.exit(main())
