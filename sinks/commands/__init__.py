"""The command of sinks. It asks the script of an output for its columns, so it stands above the queries."""
