"""
The tables of ``tidegate.toml``, one file each: **a setting is added to the file of its table**, as a field with its kind, default and
description. Only the rooms above import a table; ``tidegate.platform.settings.load`` puts all of them together.
"""
