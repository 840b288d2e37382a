"""The protocol engine: what a training loop does to its scaler, its gradients and its autocast regions, along every
path."""
