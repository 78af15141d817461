"""
Take the pictures of the page over the flights, in a real Chromium: *Time*, which the front page shows, *Pipeline* and *Tune*.

Usage: make demo KEEP=1, then python docs/pictures/page.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests"))

from support.browser import Watched, open_browser  # noqa: E402 - the tests' browser

BYTES_MAX = 200_000
# The address of each picture, the text that stands there once it is whole, and its height.
PICTURES = {
    "time": ("/time?name=flights", "in order: ", 720),
    "pipeline": ("/pipeline", "p99", 720),
    "tune": ("/tune?name=flights", "windows of", 1200),
}


def main() -> int:
    """Write the pictures; fail if a page complains of anything, or does not show what it should."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    address = json.loads(Path(".tidegate/demo/page.json").read_text())["address"]
    is_wrong = False
    with open_browser() as browser:
        for name, (path, text, height) in PICTURES.items():
            file = folder / f"{name}.png"
            tab = Watched.open(browser, address, width=1100, height=height)
            page = tab.go(path)
            page.get_by_text(text).first.wait_for()
            page.screenshot(path=file)
            tab.close()
            print(f"{file}: {file.stat().st_size:,} bytes", *tab.complaints, sep="\n")
            is_wrong |= bool(tab.complaints) or file.stat().st_size > BYTES_MAX
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
