# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""API types of version v1."""
