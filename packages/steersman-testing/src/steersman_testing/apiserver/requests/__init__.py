"""Parsing of requests: URL, query, body and content negotiation."""
