"""Evaluating expressions over whole columns, and lifting column functions out of them."""
