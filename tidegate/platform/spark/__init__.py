"""
Spark: its session and options, the driver loop, data source, workers and state. Every use of undocumented parts is in ``privates``.

Checkpoints, jobs and commands may import it. No event passes through here: Spark sees ranges, state and reports only.
"""
