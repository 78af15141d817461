"""
What every room may need and what needs none of them: names of reasons, masks of secrets, bounds of files, whose modules Python finds.

A module here imports the standard library, ``ordering.errors`` and its neighbours, nothing else of ours.
"""
