"""What a start would do, before it does it (``tidegate plan``). Only the command line imports it."""
