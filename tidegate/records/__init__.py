"""
From the bytes of a record to fields: payload formats, the fields that decide time and key, and files read as records.
"""
