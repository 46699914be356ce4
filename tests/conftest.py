"""What tests share."""

import pytest

from tests.tiny import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder of a tiny random chat model."""
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
