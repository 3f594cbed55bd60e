"""Authentication and authorization of the callers of the operator's servers, by the cluster's reviews and token-signing keys."""
