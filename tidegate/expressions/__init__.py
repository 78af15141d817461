"""
Expressions of the query language over rows: parsed, bound and evaluated alike by ingest and by queries.

Settings, payloads and both jobs may import it. Imports only go down: binding, evaluation, functions (beside them syntax), trees and values.
"""
