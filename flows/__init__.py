"""What is deployed: thin flows, the run's configuration, and the command line."""
