import numpy as np
import pytest

from sestina.data.sums import ALPHABET, ANSWER_MARK, LABELS, SumsGenerator, solution


def generator(*, held_out=False, seed=1):
    return SumsGenerator(seed=seed, max_terms=len(LABELS), tail=1.1, held_out=held_out)


def lengths(num_groups=2000, samples=8):
    problems = [generator().problem(i) for i in range(num_groups)]
    return np.array(
        [
            [
                len(solution(p, np.random.default_rng([g, s]), hurried_share=0.3, slip_rate=0.0)) + 1
                for s in range(samples)
            ]
            for g, p in enumerate(problems)
        ],
        float,
    )


def test_lengths_are_heavy_tailed_and_set_mostly_by_the_prompt():
    table = lengths()
    descending = np.sort(table.ravel())[::-1]
    assert table.max() / table.min() >= 30
    assert descending[: len(descending) // 10].sum() / descending.sum() >= 0.35
    between = table.mean(axis=1).var() / table.var()
    assert 0.6 <= between < 1.0


def test_a_solution_without_slips_reaches_the_answer_step_by_step():
    for i in range(200):
        problem = generator().problem(i)
        text = solution(problem, np.random.default_rng(i), hurried_share=0.5, slip_rate=0.0)
        steps, _, answer = text.rpartition(ANSWER_MARK)
        assert answer == str(problem.answer)
        assert steps.count(";") == len(problem.digits) - 1
        assert set(problem.text + text) <= set(ALPHABET)


def test_slips_come_at_their_rate_and_are_carried_on():
    wrong = steps = 0
    for i in range(400):
        problem = generator().problem(i)
        text = solution(problem, np.random.default_rng(i), hurried_share=0.0, slip_rate=0.2)
        for step in text.split(";")[:-1]:
            left, total = step[1:].split("=")
            wrong += sum(map(int, left.split("+"))) % 10 != int(total)
            steps += 1
    assert wrong / steps == pytest.approx(0.2 * 0.9, abs=0.02)


def test_held_out_problems_are_never_trained_on():
    train = {generator(seed=s).problem(i).text for s in (1, 2) for i in range(1500)}
    held = {generator(seed=s, held_out=True).problem(i).text for s in (1, 2) for i in range(1500)}
    assert not train & held


def test_problems_depend_on_seed_and_number_alone():
    assert generator().problem(40) == generator().problem(40)
    assert generator().problem(40) != generator(seed=2).problem(40)
    prompts = generator().prompts(3)
    assert [p.id for p in prompts] == ["train-0", "train-1", "train-2"]
    assert prompts[1].label == str(generator().problem(1).answer)
