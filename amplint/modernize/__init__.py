"""Moving deprecated names of the AMP layer to the current ones: what is found, and the edits that move it."""
