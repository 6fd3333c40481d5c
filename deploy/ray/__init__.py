"""Our engine as replicas of a Ray Serve application, behind a router that knows their caches."""
