"""
Projects of Azure Stream Analytics and definitions of Fabric Eventstreams, turned into projects of Tidegate.

The command ``tidegate convert`` enters by :mod:`tidegate.tools.convert.project`; formats are read here, and nothing else knows them.
"""
