"""
REST catalogs that must answer within a time.

Law: pyiceberg itself waits as long as the line stands. So a server that stops without a word would stop the job, which could not even say
for whom it waits. A commit that is given up may have been made: its progress is looked for, as after every lost answer.
"""

from __future__ import annotations

from functools import partial

from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.rest import RestCatalog
from requests import Session

# For a connection, and for each answer.
ANSWER_S = 30.0


class _AnsweringCatalog(RestCatalog):
    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = partial(session.request, timeout=ANSWER_S)  # type: ignore[method-assign]
        return session


def give_up_waiting() -> None:
    """Have ``load_catalog`` of this process load REST catalogs that must answer."""
    AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: _AnsweringCatalog(name, **properties)
