"""
Proofs and explanations of the model: the naive oracle and its story, and explanations of single events. Imports ordering.model, of which
the oracle shares only the settings. Commands, tests and ordering.testing import it.
"""
