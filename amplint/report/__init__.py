"""One module a format; each turns results into text and knows nothing else."""
