"""Libraries: what `dovetail build` makes, loaded."""
import os
from _thread import RLock  # the same as threading.RLock, but importing threading takes longer than all of this module

from . import _bridges, _core, _debug
from ._errors import DovetailIOError, make

SOURCE_ENDINGS = (".c", ".cpp", ".cu", ".cce")
_lock = RLock()
_libraries = {}  # pointer -> Library, in the order of loading


class Library:
    """The operators of one binary, as attributes. They are registered until close()."""

    def __init__(self, handle):
        self._handle = handle
        self.name, self.path, self._pointer = _core.library_info(handle)
        self._sources = self._flags = ()  # absolute paths and options, when load() built it
        self._operators = {}
        overloads = {}
        for op in _core.library_operators(handle):
            overloads.setdefault(op.name.split(".")[0], []).append(op)
        for name, those in overloads.items():
            self._operators[name.split("::")[1]] = those[0] if len(those) == 1 else _core.packet(name, tuple(those))
        self.__dict__.update(self._operators)

    def operators(self):
        """The operators by name: a dict."""
        return dict(self._operators)

    def close(self):
        """Remove the operators from every host. Later calls through kept references fail with a message. May be called twice."""
        with _lock:
            if self._handle is None:
                return
            _bridges.detach(self)
            del _libraries[self._pointer]
            _core.library_free(self._handle)
            self._handle = None

    closed = property(lambda self: self._handle is None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __getitem__(self, name):
        return self._operators[name]

    def __iter__(self):
        return iter(self._operators)

    def __len__(self):
        return len(self._operators)

    def __dir__(self):
        return sorted({*super().__dir__(), *self._operators})

    def __getattr__(self, name):  # called only for attributes that do not exist
        near = ", ".join(self._operators) if "_operators" in self.__dict__ else ""
        raise AttributeError(f"library '{self.__dict__.get('name')}' has no operator '{name}'; it has: {near or 'none'}")

    def __reduce__(self):
        """For pickle and copy: the library of this file."""
        return load, (self.path,)

    def __repr__(self):
        return f"<dovetail.Library {self.name}: {', '.join(self._operators)}{' (closed)' if self.closed else ''}>"


def load(path, *more, flags=(), verbose=False, attach=True):
    """Load an operator binary: gives a Library. A file whose content is loaded already gives the same Library. A file that has changed
    since it was loaded is refused with the way out: close() the Library first.

    Or source files (.c, .cpp, .cu, .cce), or a folder of them: they are compiled as by `dovetail build`, and the binary is kept in a folder of the user's ($DOVETAIL_CACHE,
    else $XDG_CACHE_HOME/dovetail, else ~/.cache/dovetail) until a source, a header, an option or the compiler changes. A compiler's
    errors are a DovetailError.

        my_ops = dovetail.load("my_ops.c", "my_ops_cuda.cu", flags=["-I", "include"])
        my_ops = dovetail.load("my_ops")  # the folder's operator files

    flags: more arguments of `dovetail build`. verbose: show the commands that run.
    attach: make them operators of the frameworks too, in each that has its own, now or as soon as it is imported.
    """
    path = os.fsdecode(path)
    if not more and not path.endswith(SOURCE_ENDINGS) and not os.path.isdir(path):
        return _load_binary(path, attach)
    from ._source import build
    sources = [path, *map(os.fsdecode, more)]
    try:
        return _load_binary(build(sources, flags, verbose), attach, sources, flags)
    except DovetailIOError:  # the binary was just removed because it was unused for a month
        return _load_binary(build(sources, flags, verbose), attach, sources, flags)


def _load_binary(path, attach, sources=(), flags=()):
    with _lock:
        try:
            handle = _core.load(path)
        except Exception as error:
            handle = _core.share(path) if getattr(error, "status", None) == "EEXIST" else None
            if handle is None:
                raise _changed(path, error, sources) from None
        library = Library(handle)
        library._sources, library._flags = tuple(map(os.path.abspath, sources)), tuple(flags)
        if library._pointer in _libraries:
            _core.library_free(handle)
            return _libraries[library._pointer]
        _libraries[library._pointer] = library
        if attach:
            try:
                _bridges.attach(library)
            except BaseException:
                library.close()
                raise
    _tell(library)
    return library


def _tell(library):
    """The first two levels of DOVETAIL_DEBUG: what was loaded, and what a call of each operator can reach."""
    if _debug.LEVEL >= 1:
        _debug.say(1, f"loaded {library.path}: {library.name}, with {', '.join(library) or 'no operators'}")
        for op in _core.library_operators(library._handle):
            _debug.say(2, f"{op.name} dispatches to", *(f"    {line}" for line in op.dispatch_table().splitlines()))


def _changed(path, error, sources):
    """The error, or the way out where another content of the same file or of the same operators is loaded. Sources are named in place of
    the binary that is kept for them."""
    if getattr(error, "status", None) != "EEXIST":
        return error
    binary, mine, text = os.path.realpath(path), tuple(map(os.path.abspath, sources)), str(error)
    changed = any(library._sources == mine if mine else library.path == binary for library in _libraries.values())
    for made, those in [(binary, mine), *((library.path, library._sources) for library in _libraries.values())]:
        if those:
            text = text.replace(made, ", ".join(those))
    what = "this file, or one that it includes," if mine else "this file"
    return make("EEXIST", f"{', '.join(sources) or path}: {f'{what} has changed since it was loaded: ' if changed else ''}{text}\n"
                          "what is loaded stays; close() its Library (dovetail.libraries() has them all) and load again, or start a new process")


def find(name):
    """The operator "namespace::name", or one overload, "namespace::name.overload". DovetailError (a LookupError) when there is none."""
    if "." not in name:
        for library in reversed(list(_libraries.values())):
            namespace, _, short = name.partition("::")
            if library.name == namespace and short in library._operators:
                return library._operators[short]
    return _own(_core.find(name))


def site(text, /):
    """The operator of a call site (docs/site.md), and its arguments by name, with arrays as the text says:

        f, args = dovetail.site("my_ops::f(f32[2, 3], n=1)")
        f(**args)
    """
    operator, args = _core.site(text)
    return _own(operator), args


def _own(operator):
    """The object that its library has for this operator: frameworks know it, and no other."""
    return next((o for library in reversed(list(_libraries.values())) for f in library.operators().values() for o in f.overloads
                 if o._pointer == operator._pointer), operator)


def libraries():
    """The libraries that are loaded, oldest first."""
    return list(_libraries.values())


def library_of(operator):
    """The loaded library that defines this operator, or None."""
    return next((library for library in _libraries.values() for f in library.operators().values()
                 if operator._pointer in (o._pointer for o in f.overloads)), None)


def export(namespace, *paths):
    """For the __init__.py of a package with operator binaries in its folder: loads them and puts their operators into its namespace.
    In a project, where there is none, it is the one that `dovetail build` put beside the folder: NAME.so for NAME/__init__.py.

        import dovetail
        __all__ = dovetail.export(globals())

    The package's __version__ is that of the installed distribution of this name, unless the package sets its own.
    """
    folder = os.path.dirname(os.path.abspath(namespace["__file__"]))
    built = folder + ".so"  # by `dovetail build`, in the project that the package lies in
    names = []
    for path in paths or _binaries(folder) or ([built] if os.path.exists(built) else []):
        operators = load(path).operators()
        namespace.update(operators)
        names.extend(operators)
    if not names:
        raise ImportError(f"there is no operator binary in {folder}; in a project, `dovetail build` makes {built}", path=folder)
    namespace.setdefault("__getattr__", _version_of(namespace["__name__"]))
    return sorted(names)


def _version_of(package):
    """A package's __getattr__: importlib.metadata takes longer to import than most packages, so nothing is read before it is wanted."""
    def get(name):
        if name == "__version__":
            from importlib.metadata import PackageNotFoundError, version
            try:
                return version(package)
            except PackageNotFoundError:
                pass
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return get


def _binaries(folder):
    return [os.path.join(folder, file) for file in sorted(os.listdir(folder)) if file.endswith(".so")]


def _reduce(operator):
    """For pickle: finds the operator by name if it is loaded, else loads its file. A functional form is made again."""
    import json
    of = operator.overloads[0] is operator and json.loads(operator.json()).get("functional_form_of")
    name = of or operator.name
    path = next((l.path for l in _libraries.values() if any(name in (o.name, *(x.name for x in o.overloads)) for o in l._operators.values())), None)
    return _restore, (name, path, bool(of))


def _restore(name, path, functional=False):
    look = _core.find if functional else find
    try:
        found = look(name)
    except LookupError:
        if not path:
            raise
        load(path)
        found = look(name)
    return found.functional() if functional else found


def _after_fork():
    global _lock
    _lock = RLock()


os.register_at_fork(after_in_child=_after_fork)
