"""What the tests share."""

import os

import pytest

import osprey


@pytest.fixture
def client():
    with osprey.Client(os.environ["OSPREY_URI"], connect_timeout=60, deadline=60) as made:
        made.delete_many([item.key for item in made.scan()])
        yield made
