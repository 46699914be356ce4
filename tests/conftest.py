"""What tests share."""

import pytest
from hypothesis import settings

from tests.tiny import make_tiny_model

settings.register_profile("shared machine", deadline=None)  # other work may take the cores at any time
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder of a tiny random chat model."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def prefect_server():
    """A Prefect server for flows that tests call in their own process."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=180):
        yield
