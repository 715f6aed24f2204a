"""From a plan to pytest items: what a pytest session of trials is made of.

With ``plugin``, ``fixtures``, ``hookspec`` and ``reporting`` this is the layer that knows pytest.
"""
