"""The part of `dovetail check` that runs in a Python with torch: `python -m dovetail.torch.check`."""
