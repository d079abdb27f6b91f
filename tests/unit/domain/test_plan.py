"""Plans: how far the agent has come in one, and when a new version of it counts as replanning."""

from hypothesis import given
from hypothesis import strategies as st

from domain.plan import Plan, PlanStep, StepState, is_replanned

STEPS = st.builds(PlanStep, title=st.text(min_size=1, max_size=5), status=st.sampled_from(StepState))
PLANS = st.builds(Plan, steps=st.lists(STEPS, min_size=1, max_size=8))
OPEN = (StepState.PENDING, StepState.IN_PROGRESS)


@given(PLANS)
def test_the_current_step_is_the_first_unsettled_one_else_the_last(plan: Plan) -> None:
    current = plan.current
    assert 1 <= current <= len(plan.steps)
    assert all(step.status not in OPEN for step in plan.steps[: current - 1])
    assert plan.steps[current - 1].status in OPEN or current == len(plan.steps)


@given(PLANS, PLANS)
def test_other_titles_or_another_order_are_a_new_plan(old: Plan, new: Plan) -> None:
    same = [step.title for step in old.steps] == [step.title for step in new.steps]
    assert is_replanned(old, new) is not same
    assert not is_replanned(None, new), "the first plan replaces nothing"
