"""Every setting, one file a table; loading, checking and documenting them."""
