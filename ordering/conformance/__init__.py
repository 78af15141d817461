"""
The conformance kit: questions and right answers for any implementation of PROTOCOL.md, including ours. It may import all other rooms of
``ordering``; only its own command and the tests import it.
"""
