"""One table: which exception a status of the library becomes. All are DovetailErrors; most are also what Python itself would raise."""


class DovetailError(RuntimeError):
    """What Dovetail raises. `status` is the name of the library's status, such as "ESHAPE"."""

    status = None


class DovetailTypeError(DovetailError, TypeError):
    """An argument has the wrong type."""


class DovetailValueError(DovetailError, ValueError):
    """An argument has the right type but a value, shape or dtype that will not do; or a text does not parse."""


class DovetailLookupError(DovetailError, LookupError):
    """There is no such operator, library or name."""


class DovetailMemoryError(DovetailError, MemoryError):
    """Out of memory."""


class DovetailImportError(DovetailError, ImportError):
    """A file is not an operator binary that this library can use."""


class DovetailNotImplementedError(DovetailError, NotImplementedError):
    """No kernel does this, or it is not supported."""


class DovetailIOError(DovetailError, OSError):
    """A file cannot be read or written."""


BY_STATUS = {
    "EINVAL": DovetailValueError,
    "ENOMEM": DovetailMemoryError,
    "ESYNTAX": DovetailValueError,
    "ESCHEMA": DovetailValueError,
    "ECONTRACT": DovetailValueError,
    "ETYPE": DovetailTypeError,
    "ESHAPE": DovetailValueError,
    "EDTYPE": DovetailValueError,
    "EDEVICE": DovetailValueError,
    "EALIAS": DovetailValueError,
    "ENOENT": DovetailLookupError,
    "EEXIST": DovetailValueError,
    "ENOKERNEL": DovetailNotImplementedError,
    "EBINARY": DovetailImportError,
    "EABI": DovetailImportError,
    "EUNLOADED": DovetailLookupError,
    "EKERNEL": DovetailError,
    "ENOTSUP": DovetailNotImplementedError,
    "EIO": DovetailIOError,
    "ELIMIT": DovetailValueError,
    "EHOST": DovetailError,
    "ENATIVE": DovetailError,
}

for _type in (DovetailError, *DovetailError.__subclasses__()):
    _type.__module__ = "dovetail"


def make(status, message):
    error = BY_STATUS.get(status, DovetailError)(message or status)
    error.status = status
    return error
