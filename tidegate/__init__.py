"""The platform under both jobs, from settings to Spark; and above the jobs the commands (cli, local, order, compare, verify)."""
