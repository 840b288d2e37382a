"""Facts about a file without paths: values, autocast regions, models, losses, scalers, frameworks, checkpoints."""
