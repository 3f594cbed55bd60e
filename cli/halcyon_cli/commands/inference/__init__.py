"""Commands that run inference for many inputs."""
