"""The platform that both jobs stand on, from settings to Spark; and above the jobs the commands (cli, local, order, compare)."""
