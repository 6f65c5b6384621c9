"""What samples, in this process or in others, and the weights' way there."""
