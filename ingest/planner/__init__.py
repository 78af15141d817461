"""Planning a batch: ends and limits of ranges, idle estimates, partitions that join, stamps of arrival."""
