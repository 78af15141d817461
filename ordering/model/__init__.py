"""
The time model of one input partition: judge, hold, release, number, write CTIs; its state and how that is saved.

Imports ordering.columns and ordering.protocol; ordering.proof and whatever runs the model import it.
"""
