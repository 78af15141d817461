"""``tidegate order``: the events of a file put in order as the job orders those of a topic, without any service."""
