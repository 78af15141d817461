"""
What the model is compared with and explained by: the naive oracle and its story, explanations of single events.

Imports ordering.model; the oracle shares no code with it but settings. Commands, tests and ordering.testing import it.
"""
