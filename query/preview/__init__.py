"""What a start would do, before it does it."""
