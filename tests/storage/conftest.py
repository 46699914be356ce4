import pytest

from storage.catalog import connect
from tests.storage.builder import make_store


@pytest.fixture
def store(tmp_path):
    """A run named demo of two updates; see builder.py."""
    return make_store(tmp_path / "store")


@pytest.fixture
def sql(store):
    """Run a query on `store` and get its rows as dicts."""
    with connect(store.root) as connection:
        yield (
            lambda query, **values: (
                connection.sql(query, params=values).to_arrow_table().to_pylist(maps_as_pydicts="strict")
            )
        )
