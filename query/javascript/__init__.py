"""Functions in JavaScript, as Stream Analytics declares them: declared beside a script, called over columns; entered by query.script."""
