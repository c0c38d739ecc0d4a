# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""API types, one package per version."""
