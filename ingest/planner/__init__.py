"""Planning a batch: limits of ranges, idle estimates, partitions that join, stamps of arrival. Stage, start and job may come in."""
