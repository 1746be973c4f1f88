"""The scheduling policies by name. Imports no torch."""

from __future__ import annotations

from .fairness import FairPolicy
from .policy import AGEING_STEPS, LongestPrefixPolicy, Policy, PriorityPolicy

POLICIES = {"fcfs": Policy, "lpm": LongestPrefixPolicy, "priority": PriorityPolicy, "fair": FairPolicy}


def make_policy(name: str, ageing: int = AGEING_STEPS) -> Policy:
    """The policy of `EngineConfig.scheduling_policy`; who has waited `ageing` steps goes first."""
    return POLICIES[name](ageing)
