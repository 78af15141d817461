"""
The time zone database: the files of the installed package ``tzdata``.

Law: nothing else is read. The operating system's database and the environment variable ``PYTHONTZPATH`` have no influence, so machines with
one version of the package agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files

from tidegate.language.time_zones.zone import Zone

# Names that T-SQL and Stream Analytics take from Windows, by CLDR's table of the zones that they stand for.
WINDOWS_NAMES = {
    "AUS Eastern Standard Time": "Australia/Sydney",
    "Alaskan Standard Time": "America/Anchorage",
    "Arabian Standard Time": "Asia/Dubai",
    "Argentina Standard Time": "America/Buenos_Aires",
    "Atlantic Standard Time": "America/Halifax",
    "Cen. Australia Standard Time": "Australia/Adelaide",
    "Central America Standard Time": "America/Guatemala",
    "Central Europe Standard Time": "Europe/Budapest",
    "Central European Standard Time": "Europe/Warsaw",
    "Central Standard Time": "America/Chicago",
    "China Standard Time": "Asia/Shanghai",
    "E. Australia Standard Time": "Australia/Brisbane",
    "E. South America Standard Time": "America/Sao_Paulo",
    "Eastern Standard Time": "America/New_York",
    "Egypt Standard Time": "Africa/Cairo",
    "FLE Standard Time": "Europe/Kiev",
    "GMT Standard Time": "Europe/London",
    "GTB Standard Time": "Europe/Bucharest",
    "Greenwich Standard Time": "Atlantic/Reykjavik",
    "Hawaiian Standard Time": "Pacific/Honolulu",
    "India Standard Time": "Asia/Calcutta",
    "Iran Standard Time": "Asia/Tehran",
    "Israel Standard Time": "Asia/Jerusalem",
    "Korea Standard Time": "Asia/Seoul",
    "Lord Howe Standard Time": "Australia/Lord_Howe",
    "Mountain Standard Time": "America/Denver",
    "Nepal Standard Time": "Asia/Katmandu",
    "New Zealand Standard Time": "Pacific/Auckland",
    "Newfoundland Standard Time": "America/St_Johns",
    "Pacific Standard Time": "America/Los_Angeles",
    "Romance Standard Time": "Europe/Paris",
    "Russian Standard Time": "Europe/Moscow",
    "SA Pacific Standard Time": "America/Bogota",
    "SE Asia Standard Time": "Asia/Bangkok",
    "Samoa Standard Time": "Pacific/Apia",
    "Singapore Standard Time": "Asia/Singapore",
    "South Africa Standard Time": "Africa/Johannesburg",
    "Tokyo Standard Time": "Asia/Tokyo",
    "Turkey Standard Time": "Europe/Istanbul",
    "US Mountain Standard Time": "America/Phoenix",
    "W. Australia Standard Time": "Australia/Perth",
    "W. Europe Standard Time": "Europe/Berlin",
}


def database_version() -> str:
    """Return the version of the database, as the tz project names it, and of the package that brings it."""
    return f"{import_module('tzdata').IANA_VERSION} (tzdata {version('tzdata')})"


@cache
def _names() -> Mapping[str, str]:
    """Return the names of all zones, by their small letters."""
    return {name.lower(): name for name in files("tzdata").joinpath("zones").read_text("utf-8").split()}


@cache
def find_zone(name: str) -> Zone | None:
    """Return the zone of a name, whose case does not matter; None if there is none."""
    spelled = _names().get(name.lower())
    if spelled is None:
        return None
    return Zone(spelled, files("tzdata").joinpath("zoneinfo", *spelled.split("/")).read_bytes())


def suggest_zone(name: str) -> str:
    """Return what to write in place of a name that no zone has."""
    windows = next((zone for written, zone in WINDOWS_NAMES.items() if written.lower() == name.lower().strip()), None)
    if windows is not None:
        return f"write '{windows}', which is what Windows calls so"
    by_place = {known.rpartition("/")[2]: zone for known, zone in _names().items()}
    folded = name.lower().strip().replace(" ", "_")
    near = get_close_matches(folded, _names(), n=1, cutoff=0.7)
    place = get_close_matches(folded.rpartition("/")[2], by_place, n=1, cutoff=0.75)
    if near or place:
        return f"did you mean '{_names()[near[0]] if near else by_place[place[0]]}'?"
    return "write a name of the tz database: a continent and a city"
