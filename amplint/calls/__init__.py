"""Calls of the AMP API: signatures, arguments, what torch refuses or takes for something else."""
