# SPDX-License-Identifier: Apache-2.0
"""The parts of scripts/bench: what is started, what is measured, how it is shown."""
