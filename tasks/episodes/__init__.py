"""The loop that plays one episode, and the exact record of its tokens."""
