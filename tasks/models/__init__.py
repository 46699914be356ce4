"""Base models, adapters, and how conversations become tokens."""
