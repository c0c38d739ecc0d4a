"""Numbers in the notation of Go."""

from __future__ import annotations


def format_go_float(value: float) -> str:
    """Format a number like ``%v`` in Go."""
    if isinstance(value, int):
        return str(value)
    mantissa, _, exponent = f"{value:.17e}".partition("e")
    if not value or -4 <= int(exponent) < 6:
        return repr(value).removesuffix(".0")
    for digits in range(17):
        mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
        if float(f"{mantissa}e{exponent}") == value:
            break
    return f"{mantissa}e{int(exponent):+03d}"
