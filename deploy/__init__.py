"""Configurations of the stack's services, and manifests for Kubernetes (`python -m deploy`)."""
