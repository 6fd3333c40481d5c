"""What another option would have done: recorded calls on a scheduler, without a model."""
