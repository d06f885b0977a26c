# SPDX-License-Identifier: Apache-2.0
"""A real Docker engine for tests: `private` is one of one's own, `shared` one for a whole test session, `image` what containers are made from."""
from .api import Api, EngineError  # noqa: F401
from .private import Engine, leftovers, missing  # noqa: F401
