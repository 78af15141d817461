"""
Destinations that keep their own progress, a folder each; ``registry`` makes them, ``base`` states their contract.
The copier (:mod:`sinks.copying`), commands and query jobs may import it.
"""
