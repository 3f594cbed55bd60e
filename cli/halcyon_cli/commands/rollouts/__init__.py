"""Commands for the rollouts of a model: `halcyon status`, `history`, `undo` and `restart`."""
