"""
Expressions of the query language over rows: ingest and queries parse, bind and evaluate them alike.

Settings, payloads and both jobs may import this package. Inside it imports only go down: binding, then evaluation, then functions and
syntax, then trees and values.
"""
