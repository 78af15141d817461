"""
Why results do not come: what each result that is due waits for. For ``tidegate why`` and its page.

The facts are those that jobs publish, with the ends of topics; nothing here asks a job to do more.
"""
