"""
The query language by itself: expressions, the fields of JSON texts they read, the clocks of time zones.

Settings, records and both jobs parse, bind and evaluate with it. It knows no settings, no Kafka and no files.
"""
