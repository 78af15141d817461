"""
What stands above both jobs: commands that look at topics, results and stores from outside. No job imports it.
"""
