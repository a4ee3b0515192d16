import pytest

from tests.coordinator.offsets.world import World


@pytest.fixture
def world() -> World:
    return World()
