"""The projects in examples/document_NNN: the document's code with its patch, run as a script."""
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
    """patched("001") -> a copy of the project's folder, with the patch applied."""
    def make(document):
        folder = tmp_path_factory.mktemp(f"document_{document}") / "project"
        shutil.copytree(ROOT / "examples" / f"document_{document}", folder)
        subprocess.run(["git", "apply", "document.patch"], cwd=folder, check=True)
        return folder
    return make


@pytest.fixture(scope="module")
def run(patched):
    """run("001") -> the script as a module, which torch.compile can find."""
    def load(document):
        spec = importlib.util.spec_from_file_location(f"document_{document}", patched(document) / "document.py")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    return load


# ---- where torchvision and IPython are not installed (PyPI's torchvision needs torch with CUDA): what document 001 uses of them

def to_pil_image(pic):
    """As torchvision 0.28's, of three channels."""
    import numpy as np
    from PIL import Image
    return Image.fromarray((pic.permute((1, 2, 0)).numpy(force=True) * 255).astype(np.uint8), "RGB")


def pil_to_tensor(pic):
    """As torchvision 0.28's: a permuted view of bytes [height, width, channels]."""
    import numpy as np
    import torch
    return torch.as_tensor(np.array(pic, copy=True)).permute((2, 0, 1))


@pytest.fixture(scope="module")
def stand_ins():
    with pytest.MonkeyPatch.context() as patch:
        try:
            import torchvision.transforms.functional  # noqa: F401
        except (ImportError, RuntimeError):
            for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional"):
                patch.setitem(sys.modules, name, types.ModuleType(name))
            sys.modules[name].to_pil_image, sys.modules[name].pil_to_tensor = to_pil_image, pil_to_tensor
        patch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None, version_info=(9, 0)))  # for Matplotlib
        patch.setenv("MPLBACKEND", "Agg")
        yield
