"""Contract between the images and the operator."""

CONTRACT = 1
"""Number of the functions of this image: configuration, requests and reports.

Raise it with each change that an operator must know of. The operator supports the newest contract and the two before
it. It finds the number in the status of the member.
"""
