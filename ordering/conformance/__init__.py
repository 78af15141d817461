"""The conformance kit: questions and answers as files, for other implementations and for ours."""
