"""Edits on whole statements and loops, as rules need them."""
