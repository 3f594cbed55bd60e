"""Authentication and authorization of the callers of the operator's servers, by what the cluster answers about them."""
