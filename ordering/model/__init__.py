"""
The time model of one input partition: judge, hold, release and number events, write CTIs; its state and its saved form. Imports
ordering.columns and ordering.protocol; imported by ordering.proof and by all code that runs the model.
"""
