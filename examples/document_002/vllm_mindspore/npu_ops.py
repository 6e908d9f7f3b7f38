"""The operators of ops/ascendc, and adv_step_flash, which comes with Dovetail."""
import dovetail

__all__ = [*dovetail.export(globals()), "adv_step_flash"]
adv_step_flash = dovetail.ops.adv_step_flash
