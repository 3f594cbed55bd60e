"""What is likely wrong with a model: facts, rules about models and pods, and a bundle without secrets."""
