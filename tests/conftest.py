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
