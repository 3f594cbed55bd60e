"""Checks of ModelDeployments as the API server stores them, which another version may have written."""
