"""The gradient side of a loop: what goes backward and steps, the protocol that is written, and its proof."""
