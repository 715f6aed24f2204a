from shop.prices import with_tax


def total(basket):
    # with_tax() rounds each price
    return sum(with_tax(net) for net in basket)
