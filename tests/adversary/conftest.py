from tests.e2e.conftest import rig

__all__ = ["rig"]
