"""
The conformance kit: questions and right answers, for any implementation of PROTOCOL.md and for ours.

Stands above all other rooms of ``ordering``; only its own command and the tests import it.
"""
