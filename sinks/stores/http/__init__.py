"""
An HTTP receiver as a store, by Standard Webhooks: ``store`` sends batches, ``request`` signs and sends one request, ``progress`` keeps the
progress in Redis. ``sinks.stores.registry`` may import it.
"""
