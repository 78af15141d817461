"""Stores that installed packages bring: found by the table of an output, with settings, problems and secrets like any other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from ordering.errors import SettingError
from sinks.extending import InstalledStore, Store, StoreContext, StoreError
from sinks.stores.checking import check_stores
from tidegate.basics import package_offers
from tidegate.platform.settings.load import Settings, load
from tidegate.platform.settings.problems import SettingsReport
from tidegate.platform.settings.tables.stores import installed


class Cellar(InstalledStore):
    """A table whose store says no."""

    url: str
    shelves: int = Field(default=3, ge=1)

    def make_store(self, context: StoreContext) -> Store:
        raise StoreError(f"{context.output} does not go into {self.shelves} shelves", where=self.url)


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, list[EntryPoint]]]:
    """What installed packages offer, by group; the store ``cellar`` to begin with."""
    offers = {installed.STORES: [EntryPoint("cellar", f"{__name__}:Cellar", installed.STORES)]}
    monkeypatch.setattr(package_offers, "installed_offers", lambda group: offers.get(group, []))
    monkeypatch.setattr(EntryPoint, "load", lambda entry: {"Cellar": Cellar, "str": str}[entry.value.rpartition(":")[2]])
    monkeypatch.chdir(tmp_path)
    installed.find_store_table.cache_clear()
    yield offers
    installed.find_store_table.cache_clear()


def read(text: str, env: Mapping[str, str] | None = None) -> Settings:
    """Load the output ``wine`` with *text* as the table of its store."""
    Path("tidegate.toml").write_text(f'[outputs.wine]\ntopic = "wine"\n[outputs.wine.cellar]\n{text}\n', "utf-8")
    return load(None, {}, env or {})


def problems_of(text: str) -> list[SettingError]:
    """Return what is wrong with it."""
    with pytest.raises(SettingError) as refused:
        read(text)
    return list(refused.value.problems) if isinstance(refused.value, SettingsReport) else [refused.value]


def test_its_table_has_settings_like_any_other(offered: Any) -> None:
    """Defaults, those that every store has, origins, variables of the environment; and the job's check asks it."""
    settings = read('url = "http://cellar"\nshelves = 4', {"TIDEGATE_OUTPUTS__WINE__CELLAR__ON_ERROR": "dead_letter"})
    output = settings.output("wine")
    (table,) = output.stores.values()
    assert isinstance(table, Cellar)
    assert (table.url, table.shelves, table.on_error, table.batch_rows) == ("http://cellar", 4, "dead_letter", 50_000)
    assert settings.origins()["outputs.wine.cellar.shelves"] == ("4", "tidegate.toml:5")
    (refused,) = check_stores(output, [("name", "nvarchar(max)")])
    assert refused.what == "wine does not go into 4 shelves"


def test_wrong_settings_of_it_are_refused_with_what_is_allowed(offered: Any) -> None:
    """All at once, each with its place."""
    unknown, wrong, missing = problems_of("shelfs = 3\nshelves = 0")
    assert (unknown.code, unknown.where) == ("TG-SETTING-UNKNOWN", "tidegate.toml:4")
    assert "did you mean shelves?" in unknown.fix
    assert (wrong.where, wrong.fix) == ("tidegate.toml:5", "allowed: at least 1")
    assert "outputs.wine.cellar.url" in missing.what


def test_a_secret_in_its_url_is_no_setting_of_the_file(offered: Any) -> None:
    """It is refused there, and taken from the environment or a file."""
    (exposed,) = problems_of('url = "http://me:sesame-17@cellar"')
    assert (exposed.code, "sesame" in str(exposed)) == ("TG-SETTING-SECRET", False)
    (table,) = read('url = "env:CELLAR"', {"CELLAR": "http://me:sesame-17@cellar"}).output("wine").stores.values()
    assert isinstance(table, Cellar)
    assert table.url == "http://me:sesame-17@cellar"


def test_a_store_that_nobody_brings_is_named(offered: dict[str, list[EntryPoint]]) -> None:
    """A table of an output that is neither ours nor a package's."""
    offered.clear()
    (unknown,) = problems_of('url = "http://cellar"')
    assert unknown.what == "there is no setting and no store cellar of an output"
    assert "install the package" in unknown.fix


def test_a_name_that_two_packages_offer_is_refused_naming_both(offered: dict[str, list[EntryPoint]]) -> None:
    """Which of them counts would depend on the order of installation; another name may be offered twice."""
    offered[installed.STORES] += [EntryPoint("attic", "north:Cellar", "g"), EntryPoint("attic", "south:Cellar", "g")]
    read('url = "http://cellar"')
    installed.find_store_table.cache_clear()
    offered[installed.STORES].append(EntryPoint("Cellar", "south.stores:Cellar", installed.STORES))
    (twice,) = problems_of('url = "http://cellar"')
    assert (twice.code, twice.where) == ("TG-EXTENSION", "tidegate.stores: cellar")
    assert f"a package ({__name__}:Cellar)" in twice.what
    assert "a package (south.stores:Cellar)" in twice.what


def test_what_is_no_table_of_settings_is_refused(offered: dict[str, list[EntryPoint]]) -> None:
    """The package is to blame, and named."""
    offered[installed.STORES] = [EntryPoint("cellar", "builtins:str", installed.STORES)]
    (unusable,) = problems_of('url = "http://cellar"')
    assert (unusable.code, "cellar (builtins:str)" in unusable.what) == ("TG-EXTENSION", True)


def test_a_store_of_ours_is_not_replaced(offered: dict[str, list[EntryPoint]]) -> None:
    """A setting means the same wherever it is read."""
    offered[installed.STORES].append(EntryPoint("delta", f"{__name__}:Cellar", installed.STORES))
    Path("tidegate.toml").write_text('[outputs.wine]\ntopic = "wine"\n[outputs.wine.delta]\npath = "lake"\n', "utf-8")
    assert not isinstance(load(None, {}, {}).output("wine").stores["delta"], Cellar)
