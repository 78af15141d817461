"""What both jobs stand on, and the command line (cli, local, order, compare)."""
