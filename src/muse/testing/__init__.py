"""Shipped for others: store conformance, wire servers, fault injection."""
