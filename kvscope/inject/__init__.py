"""What `kvscope inject` needs: manifests edited as text, and the containers that observe a pod."""
