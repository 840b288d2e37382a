"""What goes under autocast: graphs of losses, runs of statements, penalties in float32, evaluation."""
