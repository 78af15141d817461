"""Reference data: tables, their files, looking rows up, and which versions may go. Engine, buckets, start and stage may come in."""
