"""What runs the stack: configurations of its services, and `python -m deploy` for Kubernetes."""
