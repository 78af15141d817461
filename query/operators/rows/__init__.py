"""Operators that take rows one by one."""
