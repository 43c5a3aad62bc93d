"""What the engine asks for: draws of inputs. An algorithm asks for Draws; the scheduler makes Requests of them."""

from enum import IntEnum
from typing import NamedTuple

__all__ = ["MAX_DRAWS", "Draws", "Phase", "Request"]

# Noise stream 1 numbers an input's draws with 56 bits in each phase.
MAX_DRAWS = 2**56


class Phase(IntEnum):
    """What draws are for. Draws of different phases never share noise."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2


class Draws(NamedTuple):
    """The next `number` draws of a phase, for the input that an algorithm is at work on."""

    phase: Phase
    number: int


class Request(NamedTuple):
    """The draws [first_draw, first_draw + draws) of one input in one phase: the next `draws` rows of a batch."""

    slot: int
    """The row of the device's tables where the input is at hand."""
    input_id: int
    """The input's number in the data, below 2^32: with the seed it decides the noise."""
    phase: Phase
    first_draw: int
    draws: int
