"""The real servers of a test session, in containers or embedded, and the stages that a test runs on them and kills. For fixtures."""
