"""What follows from a declaration for torch's other systems: vmap, autocast, functionalization, DTensor, counted FLOPs."""
