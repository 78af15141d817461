"""The ingest job: raw topics in, ordered topics out. Only the command line and tests import it."""

# What its Python processes in Spark import: they are forked from one that has done so.
PYTHON_MODULES = ("ingest.planner.planner", "ingest.stage.processor")
