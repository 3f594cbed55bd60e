"""The search for the settings with which a model serves most within its objective. Pure: measurements come from outside."""
