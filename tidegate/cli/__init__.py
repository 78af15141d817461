"""The command line; its commands are found by entry point."""
