"""Where scalers are made, how they come to where they are used, and their state in checkpoints."""
