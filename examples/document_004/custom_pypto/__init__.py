"""The operators, which are torch.ops.custom_pypto's too, and their converters where torchair is installed."""
from .custom_pypto_lib import *  # noqa: F403

try:
    import torchair.ge  # noqa: F401
except ImportError:
    pass
else:
    from . import converter  # noqa: F401
