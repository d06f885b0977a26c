# SPDX-License-Identifier: Apache-2.0
"""Kubernetes in tests: a real cluster (cluster.py), and an API server that is played (api_server.py)."""
