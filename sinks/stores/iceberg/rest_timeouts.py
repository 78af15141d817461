"""
Gives requests to REST catalogs a time limit.

pyiceberg itself waits as long as the connection is open. So a server that goes silent would stop the job, and the job could not even report
the wait.

Law: a commit that is given up may have been made, so its progress is looked up, as after every lost answer.
"""

from __future__ import annotations

from functools import partial

from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.rest import RestCatalog
from requests import Session

# The limit for connecting, and for each answer.
ANSWER_S = 30.0


class _TimedCatalog(RestCatalog):
    def _create_session(self) -> Session:
        session = super()._create_session()
        session.request = partial(session.request, timeout=ANSWER_S)  # type: ignore[method-assign]
        return session


def limit_rest_requests() -> None:
    """Have ``load_catalog`` in this process load REST catalogs with a time limit."""
    AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: _TimedCatalog(name, **properties)
