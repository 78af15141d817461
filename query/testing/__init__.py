"""
What the kit for tests of users (:mod:`tidegate.testing`) does: a query or sink under test runs in this process, and its law is tried.
Only the kit, and the command ``tidegate test``, may enter.
"""
