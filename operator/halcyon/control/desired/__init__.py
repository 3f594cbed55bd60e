"""The plan of a reconcile: the objects to create or update, the objects to delete, and their order. Pure."""
