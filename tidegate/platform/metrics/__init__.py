"""
The metrics of a running job as Prometheus fetches them, with the health that they show. Jobs and commands may import it.
"""
