"""Reference data: tables, their files, looking them up and when older ones may go."""
