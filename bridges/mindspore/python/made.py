# Functions that dovetail.mindspore.primitive() made have lines after this one, in Python's linecache alone: see inspect.getsource().
