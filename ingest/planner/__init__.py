"""Planning a batch: limits of ranges, idle estimates, partitions that join, arrival stamps. Stage, start and job may import it."""
