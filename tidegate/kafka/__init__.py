"""Kafka both ways: ranges, cached consumers, frames, time index, writer."""

STEADY = {"enable.sparse.connections": "false"}
"""
What every client is made with, unless ``[kafka.client]`` says otherwise: it keeps connections to all brokers. One that connects
only where it has something to ask may never connect again after a broker was silent for a while (librdkafka 2.16): it takes a
connection that it has given up for one that is under way.
"""
