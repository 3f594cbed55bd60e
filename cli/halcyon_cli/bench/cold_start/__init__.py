"""Cold starts of server pods, watched from the creation of a pod until it is ready."""
