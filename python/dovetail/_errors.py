"""The table that maps the library's status codes to exceptions. All are DovetailErrors; most are also the kind of error that Python
itself would raise."""


class DovetailError(RuntimeError):
    """The base of all errors that Dovetail raises. `status` is the name of the library's status, such as "ESHAPE"."""

    status = None


class DovetailTypeError(DovetailError, TypeError):
    """An argument has the wrong type."""


class DovetailValueError(DovetailError, ValueError):
    """An argument has the right type but an invalid value, shape or dtype; or a text does not parse."""


class DovetailLookupError(DovetailError, LookupError):
    """No operator, library or name of this kind exists."""


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
