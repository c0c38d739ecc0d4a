# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Webhooks, one module per kind."""
