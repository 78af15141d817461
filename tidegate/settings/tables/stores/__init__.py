"""The tables of stores in [outputs.NAME], one module each: ``base`` has what all of them have."""
