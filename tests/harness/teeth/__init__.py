"""What each fault does to each scenario, worked out before it is run."""

from tests.harness.teeth import (
    accounting,
    cache_types,
    checkpoints,
    lora,
    probes,
    slot_choice,
    slot_files,
)

FAMILIES = (
    lora.FAMILY,
    probes.FAMILY,
    slot_choice.FAMILY,
    slot_files.FAMILY,
    accounting.FAMILY,
    checkpoints.FAMILY,
    cache_types.FAMILY,
)
