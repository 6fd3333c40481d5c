"""Manifests edited as text, and the containers that observe a pod: for `kvscope inject`."""
