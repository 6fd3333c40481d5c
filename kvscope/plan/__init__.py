"""What fits on a GPU, calculated from a checkpoint's config.json; loads nothing."""
