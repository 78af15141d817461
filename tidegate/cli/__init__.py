"""
The command line: one module for each command, found by entry point.
No module imports it. It may import everything.
"""

from tidegate.own_packages import end_unless_own

# Without it no error could be reported; the others are checked when a command runs.
end_unless_own("ordering")
