"""Agents that are interrupted anywhere: there are never two groups, and no founder lacks a write."""

from __future__ import annotations

import os

import pytest

from database_support.simulation.bootstrap_harness import SIZE, BootstrapHarness

STEPS = 600
SEEDS = 400 if os.environ.get("SIMULATE") == "whole" else 40


def explored(seed: int) -> BootstrapHarness:
    """A world in which anything happened, in any order."""
    world = BootstrapHarness(seed)
    for _ in range(STEPS):
        number = world.chance.randrange(SIZE)
        match world.chance.randrange(100):
            case 0 | 1:
                for each in range(SIZE):
                    world.crash(each)
            case 2 | 3 | 4:
                world.crash(number)
            case 5 if world.loses_volumes:
                world.lose_volume(number)
            case 6:
                world.delete_pod(number)
            case 7 | 8 | 9:
                world.expel(number)
            case 10 | 11 | 12 | 13 | 14 | 15:
                world.write()
            case 16 | 17 | 18:
                world.flush(number)
            case 19 | 20 | 21 | 22 | 23:
                world.operate()
            case 24 | 25 if world.consents:
                world.consent()
                world.operate()
                world.operate()
            case 26 if world.consents:
                world.cut(number)
            case 26 if world.loses_store:
                world.store = None
            case _ if world.acts(number):
                world.agent(number)
            case _:
                pass
        world.one_group()
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_bootstrap_exploration_holds_invariants(seed: int) -> None:
    explored(seed).converge()


def test_consent_exploration_is_reached() -> None:
    """Those that were used, and those that were declared for an outage that was over by then."""
    worlds = [explored(seed) for seed in (2, 3, 7, 8, 12)]
    assert any(world.used for world in worlds)
    assert any(world.declared not in (None, *world.used) for world in worlds)
