"""The tables of stores in [outputs.NAME], one module each; ``base`` has the settings of all stores."""
