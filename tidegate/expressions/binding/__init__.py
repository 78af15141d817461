"""Binding of expressions: names resolved, kinds checked."""
