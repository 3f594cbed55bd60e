"""Checks of ModelDeployments in the API server's storage, which another version of Halcyon may have written."""
