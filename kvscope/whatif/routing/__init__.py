"""Hits behind another router: requests of a trace or of recordings on simulated replicas."""
