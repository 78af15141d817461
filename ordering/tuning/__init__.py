"""
Forecasts: what policies would have done to recorded events, and which policies are worth their delay.

For the commands and pages that help to choose policies. Nothing here reads a file, a broker or a clock.
"""
