"""Text as an attacker writes it, and whether a terminal would obey what was printed."""

from __future__ import annotations

import re

HOSTILE = (
    '[/x][red]shown[/red] \x1b]0;title\x07\x1b[2J\x1b[1;1H\x9b31m\x08\x00 \u202ereversed\u2066 \u2028line\x85next\r\n{"event":"forged"}\n'
    "\x7f\ud800 \N{SNOWMAN}"
)
"""Markup that closes nothing; controls of old and new kind; direction; ends of lines; half a character; and one that is harmless."""

# What rich itself writes on a terminal: colours, the cursor of live lines, hidden and shown.
_OWN = re.compile(r"\x1b\[[0-9;]*[mKAGJ]|\x1b\[\?25[lh]|\r\n|\r|\n")


def commands_in(printed: str, *, on_terminal: bool = False) -> list[str]:
    """Return what a terminal would not show but obey; line feeds aside, and on a terminal what rich writes."""
    text = _OWN.sub("", printed) if on_terminal else printed.replace("\n", "")
    return [character for character in text if not character.isprintable()]
