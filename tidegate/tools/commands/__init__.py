"""
The command line and the commands that belong to no single package: one module for each, found by entry point.
No module imports it. It may import everything.
"""

from tidegate.basics.own_packages import end_unless_own

# Without it no error could be reported; the others are checked when a command runs.
end_unless_own("ordering")
