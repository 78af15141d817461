"""GROUP BY and the windows in it: what a SELECT groups its rows by. Only the binders of :mod:`query.sql` and lint import from here."""
