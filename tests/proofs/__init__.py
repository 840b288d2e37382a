"""What each rule says of torch, run on the CPU: the harm, and that the fixed text removes it."""
