"""
Charts of commands: lines, points and words on two axes, as SVG or PNG.

Law: the bytes of an SVG depend on the chart alone. Words are escaped, so no name of a user becomes markup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ordering.errors import SettingError
from ordering.ticks import SECOND_US, format_duration

WIDTH, HEIGHT = 860, 480
_LEFT, _RIGHT, _TOP, _BOTTOM = 96, 24, 44, 56
_MARKS = 6
# On white paper; in this order for several series.
COLOURS = ("#0969da", "#8250df", "#0a7a7a", "#bc4c00", "#1a7f37", "#cf222e", "#57606a", "#9a6700")
_INK, _SOFT, _GRID = "#1f2328", "#59636e", "#eaeef2"
_FONT_SIZE = 13


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its title, its ends, the word for each value, and the values that are marked (none: some in equal steps)."""

    title: str
    first: float
    last: float
    word: Callable[[float], str]
    marks: tuple[float, ...] = ()

    def share(self, value: float) -> float:
        return (value - self.first) / (self.last - self.first) if self.last > self.first else 0.5

    def marked(self) -> Sequence[float]:
        step = (self.last - self.first) / (_MARKS - 1)
        return self.marks or [self.first + step * place for place in range(_MARKS)]


@dataclass(frozen=True, slots=True)
class Series:
    """A line through points, or only points; *words* stand beside some of them."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    is_line: bool = True
    radius: float = 0.0
    words: Sequence[tuple[float, float, str]] = ()


@dataclass(slots=True)
class Chart:
    """A chart."""

    title: str
    x: Axis
    y: Axis
    series: list[Series] = field(default_factory=list)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point stands on the page."""
        across = _LEFT + (WIDTH - _LEFT - _RIGHT) * min(max(self.x.share(x), 0.0), 1.0)
        return across, HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * min(max(self.y.share(y), 0.0), 1.0)

    def draw(self, page: Any) -> None:
        """Draw the chart on a page, an :class:`_SvgPage` or :class:`_PngPage`."""
        left, bottom = self.place(self.x.first, self.y.first)
        right, top = self.place(self.x.last, self.y.last)
        for value in self.y.marked():
            _, y = self.place(self.x.first, value)
            page.line([(left, y), (right, y)], _GRID, 1)
            page.text(left - 8, y + 4, self.y.word(value), _SOFT, "end")
        for value in self.x.marked():
            x, _ = self.place(value, self.y.first)
            page.line([(x, bottom), (x, bottom + 5)], _SOFT, 1)
            page.text(x, bottom + 20, self.x.word(value), _SOFT, "middle")
        page.line([(left, top), (left, bottom), (right, bottom)], _SOFT, 1)
        page.text(8, 20, self.title, _INK, "start")
        page.text(left, top - 8, self.y.title, _SOFT, "start")
        page.text(right, HEIGHT - 12, self.x.title, _SOFT, "end")
        for each in self.series:
            points = [self.place(*point) for point in each.points]
            if each.is_line and len(points) > 1:
                page.line(points, each.colour, 2)
            for x, y in points if each.radius else ():
                page.dot(x, y, each.radius, each.colour)
            for x, y, word in each.words:
                across, down = self.place(x, y)
                page.text(across + 8, down - 6, word, _INK, "start") if across < WIDTH * 0.6 else page.text(
                    across - 8, down - 6, word, _INK, "end"
                )
        named = [each for each in self.series if each.name]
        for place, each in enumerate(named):
            page.text(right - 8, top + 16 + 18 * place, each.name, each.colour, "end")


class _SvgPage:
    def __init__(self, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"',
            f' font-family="sans-serif" font-size="{_FONT_SIZE}" role="img" aria-label={quoteattr(title)}>',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        ]

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>')

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}"/>')

    def text(self, x: float, y: float, words: str, colour: str, anchor: str) -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>')

    def encode(self) -> bytes:
        return "\n".join([*self._parts, "</svg>\n"]).encode()


class _PngPage:
    _SCALE = 2

    def __init__(self, title: str) -> None:
        from PIL import Image, ImageDraw, ImageFont

        self._image = Image.new("RGB", (WIDTH * self._SCALE, HEIGHT * self._SCALE), "#ffffff")
        self._draw = ImageDraw.Draw(self._image)
        self._font = ImageFont.load_default(_FONT_SIZE * self._SCALE)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float) -> None:
        scaled = [(x * self._SCALE, y * self._SCALE) for x, y in points]
        self._draw.line(scaled, fill=colour, width=round(width * self._SCALE), joint="curve")

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        x, y, radius = x * self._SCALE, y * self._SCALE, radius * self._SCALE
        self._draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    def text(self, x: float, y: float, words: str, colour: str, anchor: str) -> None:
        edge = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
        self._draw.text((x * self._SCALE, y * self._SCALE), words, fill=colour, font=self._font, anchor=edge)

    def encode(self) -> bytes:
        import io

        buffer = io.BytesIO()
        self._image.save(buffer, "PNG", optimize=True)
        return buffer.getvalue()


_PAGES: dict[str, Callable[[str], Any]] = {".svg": _SvgPage, ".png": _PngPage}


def check_plot(path: Path) -> None:
    """Raise SettingError if no picture can be written to *path*: its ending is neither svg nor png, or pillow is missing."""
    suffix = path.suffix.lower()
    if suffix not in _PAGES:
        what = f"{path.name} is neither SVG nor PNG"
        raise SettingError(what, code="TG-SETTING-VALUE", where="--plot", fix="end its name in .svg or .png", example="--plot delay.svg")
    if not path.absolute().parent.is_dir():
        raise SettingError(f"there is no folder {path.parent}", code="TG-SETTING-VALUE", where="--plot", fix="make it, or name another")
    if suffix == ".png":
        try:
            import PIL  # noqa: F401 - only whether it is there
        except ImportError:
            what = "a PNG needs the package pillow"
            fix = "install the extra plots, or draw an SVG"
            raise SettingError(what, code="TG-PLOT-EXTRA", where="--plot", fix=fix, example="pip install 'tidegate[plots]'") from None


def render(chart: Chart, suffix: str) -> bytes:
    """Return a chart as the bytes of a ``.svg`` or ``.png``."""
    page = _PAGES[suffix.lower()](chart.title)
    chart.draw(page)
    encoded: bytes = page.encode()
    return encoded


def write_picture(chart: Chart, path: Path) -> None:
    """Write a chart to a file; its ending says how."""
    path.write_bytes(render(chart, path.suffix))


def duration_word(us: float) -> str:
    """Write a duration on an axis, without digits that nobody reads."""
    step = SECOND_US // 1000 if abs(us) < SECOND_US else SECOND_US if abs(us) < 7200 * SECOND_US else 60 * SECOND_US
    return format_duration(round(us / step) * step)
