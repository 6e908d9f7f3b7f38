from poison import found  # noqa: F401: the array stays unwritten
