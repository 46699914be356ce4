"""`python -m flows` is `rollmill`."""

from flows.cli import main

main()
