"""
What editors ask about a script that is being written: what may come next, what a name means, what is wrong. ``tidegate lsp`` enters here.

A script that is being written is seldom a whole one: all but the findings works on its words, not on its tree.
"""
