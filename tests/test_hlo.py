"""Tests of the loops and cycles of a small program text."""

from __future__ import annotations

import pytest

from webagent_jax.hlo import count_dynamic_loops, estimated_cycles

PROGRAM = """HloModule jit_decode, is_scheduled=true

%inner_body (p.1: s32[]) -> s32[] {
  %a = s32[] fusion(%p.1), calls=%f, backend_config={"estimated_cycles":"7"}
}

%known_body (p.2: s32[]) -> s32[] {
  %b = s32[] fusion(%p.2), calls=%f, backend_config={"estimated_cycles":"100"}
}

%greedy (p.3: s32[]) -> s32[] {
  %c = s32[] fusion(%p.3), calls=%f, backend_config={"estimated_cycles":"1000"}
}

%sampled (p.4: s32[]) -> s32[] {
  %d = s32[] fusion(%p.4), calls=%f, backend_config={"estimated_cycles":"3000"}
}

%called (p.5: s32[]) -> s32[] {
  %e = s32[] fusion(%p.5), calls=%f, backend_config={"estimated_cycles":"50000"}
}

%outer_body (p.6: s32[]) -> s32[] {
  %g = s32[] fusion(%p.6), calls=%f, backend_config={"estimated_cycles":"20"}
  %h = s32[] while(%g), condition=%cond, body=%inner_body, metadata={}
  %i = s32[] while(%h), body=%known_body, backend_config={"known_trip_count":{"n":"4"}}
  %j = s32[] conditional(%i, %h, %h), branch_computations={%greedy, %sampled}, metadata={}
}

%unused (p.7: s32[]) -> s32[] {
  %k = s32[] fusion(%p.7), calls=%f, backend_config={"estimated_cycles":"999999"}
}

ENTRY %main (p.8: s32[]) -> s32[] {
  %l = s32[] fusion(%p.8), calls=%f, backend_config={"estimated_cycles":"500000"}
  %m = s32[] while(%l), condition=%cond, body=%outer_body, metadata={}
  %n = s32[] call(%m), to_apply=%called
}
"""


@pytest.mark.parametrize(("outer", "inner"), [(1, 0), (1, 8), (3, 2)])
def test_loops_branches_and_calls_count(outer: int, inner: int) -> None:
    body = 20 + inner * 7 + 4 * 100 + 3000
    assert estimated_cycles(PROGRAM, (outer, inner)) == 500_000 + 50_000 + outer * body
    boolean = PROGRAM.replace(
        "branch_computations={%greedy, %sampled}",
        "true_computation=%sampled, false_computation=%greedy",
    )
    assert estimated_cycles(boolean, (outer, inner)) == estimated_cycles(PROGRAM, (outer, inner))


def test_loops_with_known_trip_count_are_not_dynamic() -> None:
    assert count_dynamic_loops(PROGRAM) == 2
