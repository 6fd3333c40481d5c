"""A process that follows the replicas of many sidecars; its only state is what it has seen."""
