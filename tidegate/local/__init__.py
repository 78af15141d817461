"""What commands do with files on one machine, without a cluster."""
