"""The test suite runs pytest inside pytest."""

pytest_plugins = ["pytester"]
