"""GRPO: advantages, losses, batches and the trainer. Pure maths apart from the optimiser's state."""
