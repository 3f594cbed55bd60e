"""Authentication and authorization of clients of the operator's servers, with TokenReviews, access reviews or token-signing keys."""
