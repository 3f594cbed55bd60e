"""Options of `halcyon bench`, by subject: each module has one group, received by the command as one frozen value."""
