"""
The query job: ordered topics in, final results out.

A script becomes plans (``sql``, ``plan``), and these a program of operators (``engine``, ``operators``). A bucket runs the program on the
logs of ordered topics (``buckets``); ``stage`` is the part that Spark runs. ``start`` decides how a job continues, ``preview`` forecasts
that. ``reference`` has the tables for lookups, ``columns`` turns records and results into columns and back. Start reading at
:mod:`query.job`; ``docs/reference/architecture.md`` follows one batch.
"""

# What its Python processes in Spark import: they are forked from one that has done so.
PYTHON_MODULES = ("query.stage.planner", "query.stage.processor")
