"""What lies in a checkpoint's folder: settings it is bound to, known topics, spilled batches."""
