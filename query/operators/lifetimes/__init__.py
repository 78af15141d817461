"""Operators that say how long a row lives, shift it, or are offered by packages."""
