"""A change of a served model's spec as a canary, which `halcyon tune --apply` makes, follows, and keeps or takes back."""
