"""
Destinations that keep their own progress, one module or folder each, opened by ``registry``; ``base`` states their contract.
The copier (:mod:`sinks.copying`), commands and query jobs may enter.
"""
