"""
A real Chromium for the tests of the page: the distribution's own, headless, driven by Playwright, which downloads none.

Law: a page that is opened here may ask no server but its own, and may complain about nothing in its console; :meth:`Watched.complaints`
has both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

_NAMES = "chromium", "chromium-browser", "google-chrome"
_REFUSAL = "Failed to load resource: the server responded with a status of"
# Chromium gives up its requests when the machine gets or loses a network, as it does with each container of other tests.
_NETWORK_CHANGED, _TRIES = "net::ERR_NETWORK_CHANGED", 5
# Root may start it without a sandbox only; /dev/shm is small in containers.
_FLAGS = "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"


def find_chromium() -> str:
    """Return the path of a Chromium; fail the test if there is none, since only a browser shows what the page does."""
    named = os.environ.get("TIDEGATE_TEST_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.fail(
            "THE PAGE IS NOT TESTED: no Chromium is installed. apt-get install chromium, or set TIDEGATE_TEST_CHROMIUM", pytrace=False
        )
    return found


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a Chromium; end it."""
    path = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """
    A tab, and what it did that it must not.

    Args:
        origin: The one server that it may ask: scheme, host and port.

    Attributes:
        network_changes: How many requests it has given up since the machine's network changed.
    """

    page: Page
    origin: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    network_changes: int = 0

    @classmethod
    def open(cls, browser: Browser, origin: str, *, dark: bool = False, width: int = 1280, height: int = 800) -> Watched:
        """Open a tab with storage of its own."""
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light")
        watched = cls(context.new_page(), origin)
        page = watched.page
        page.set_default_timeout(20_000)
        page.on("console", lambda message: watched._hear(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: watched.errors.append(str(error)))
        page.on("dialog", lambda dialog: (watched.errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: watched._judge(request.url))
        return watched

    def _hear(self, complaint: str) -> None:
        if _NETWORK_CHANGED in complaint:
            self.network_changes += 1
        else:
            self.errors.append(complaint)

    def _judge(self, url: str) -> None:
        parts = urlsplit(url)
        if f"{parts.scheme}://{parts.netloc}" != self.origin:
            self.foreign.append(url)

    def go(self, path: str) -> Page:
        """Open an address of the server; again if the machine's network has changed meanwhile."""
        for _ in range(_TRIES):
            changes = self.network_changes
            try:
                self.page.goto(self.origin + path)
            except Error as error:
                self._hear(str(error))
                if self.network_changes == changes:
                    raise
            if self.network_changes == changes:
                break
        return self.page

    @property
    def complaints(self) -> list[str]:
        """Errors of the console, dialogs, and requests to others."""
        return self.errors + [f"asked {url}" for url in self.foreign]

    def forgive_refusals(self) -> None:
        """Forget that the browser has named answers with an error in its console: the page shows each in its own words."""
        self.errors = [error for error in self.errors if not error.startswith(_REFUSAL)]

    def close(self) -> None:
        """Close the tab."""
        self.page.context.close()
