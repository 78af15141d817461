"""
An HTTP receiver as a store, by Standard Webhooks: ``store`` sends, ``request`` signs and judges, ``progress`` notes in Redis how far
the receiver is. ``sinks.stores.registry`` may enter.
"""
