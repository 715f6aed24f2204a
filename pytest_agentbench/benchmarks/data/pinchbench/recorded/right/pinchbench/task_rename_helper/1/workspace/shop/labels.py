from shop import prices


def label(name, net):
    return f"{name}: {prices.with_tax(net, rate=0.1):.2f}"
