"""Requests for draws. An algorithm asks for Draws; the scheduler turns them into Requests, which make up batches."""

from enum import IntEnum
from typing import NamedTuple

__all__ = ["FIRST_OWN_ID", "MAX_DRAWS", "Draws", "Phase", "Request", "name_input"]

# In each phase, noise stream 1 numbers the draws of an input with 56 bits.
MAX_DRAWS = 2**56
# Inputs that nobody numbered are numbered from here on, for their noise.
FIRST_OWN_ID = 2**31


def name_input(input_id: int) -> str:
    """What an error calls this input."""
    return f"input {input_id}" if input_id < FIRST_OWN_ID else "the input"


class Phase(IntEnum):
    """What a draw is for. Draws of different phases never share noise."""

    SELECTION = 0
    ESTIMATION = 1
    PREDICTION = 2


class Draws(NamedTuple):
    """The next `number` draws of a phase, for the input that an algorithm works on."""

    phase: Phase
    number: int


class Request(NamedTuple):
    """The draws [first_draw, first_draw + draws) of one input in one phase: the next `draws` rows of a batch."""

    slot: int
    """The sampler's slot that holds the input."""
    input_id: int
    """The number of the input in its data source, below 2^32. Together with the seed it decides the noise."""
    phase: Phase
    first_draw: int
    draws: int
