"""What can be asked of an engine beside its metrics: answers with a structure, as JSON."""
