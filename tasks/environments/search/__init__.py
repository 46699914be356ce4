"""Questions that are answered by searching a corpus."""

from tasks.environments.search.environment import Search
from tasks.environments.search.synthetic import SyntheticSearch

__all__ = ["Search", "SyntheticSearch"]
