"""What both jobs stand on (runtime) and the command line (cli)."""
