"""
Results computed again from the ordered topics that are there, and compared with topics, files, stores and plain topics.
*Standing* rows and files are those found there; *computed* ones come from the recomputation. Only tools that verify or trace may enter.
"""
