"""Prices of the shop."""


def with_tax(net, rate=0.2):
    """Price with tax."""
    return round(net * (1 + rate), 2)


calc = with_tax
