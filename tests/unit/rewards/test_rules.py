import pytest

from sestina.core.errors import ConfigError
from sestina.rewards.rules import load
from tests.unit.rewards.helpers import EXACT, MATH, function, sample


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("so #### 42", "42", 1),
        ("####42\n", 42, 1),
        ("#### 1 no: #### 2", "2", 1),
        ("#### 1 no: #### 2", "1", 0),
        ("42", "42", 0),
        ("42 ####", "42", 0),
        ("#### 42.0", "42", 0),
        ("", "", 0),
    ],
)
def test_exact(response, label, reward):
    assert load(EXACT)(sample(response, label)) == reward


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("The answer is 42.", "42", 1),
        ("The answer is 42.", 42, 1),
        ("The answer is 41.", "42", 0),
        (r"so \boxed{0.5}", r"\frac{1}{2}", 1),
        (r"so \boxed{\frac12}", r"$\frac{1}{2}$", 1),
        (r"so $\frac{3}{6}$", r"\boxed{1/2}", 1),
        (r"so \boxed{0.5}", 0.5, 1),
        ("It is 1. No, the answer is 2.", "2", 1),
        ("It is 1. No, the answer is 2.", "1", 0),
        (r"\boxed{1} and \boxed{2}", r"\{1, 2\}", 1),
        (r"\boxed{1} and \boxed{2}", "1", 0),
        (r"so \boxed{3}", r"3\pi", 0),
        (r"so \boxed{3\pi}", r"3\pi", 1),
        (r"so \boxed{\{3,1,2\}}", "1,2,3", 1),
        ("no answer at all", "42", 0),
        ("", "42", 0),
    ],
)
def test_math(response, label, reward):
    assert load(MATH)(sample(response, label)) == reward


@pytest.mark.parametrize("label", ["", r"\frac{1}{", None, ["1"], True])
def test_a_label_that_is_no_answer_is_an_error_and_not_a_zero(label):
    with pytest.raises(ValueError, match=r"label .*(cannot be read|must be an answer)"):
        load(MATH)(sample("42", label))


@pytest.mark.parametrize(
    ("name", "signature", "meta", "reward"),
    [
        ("native", "native", {"k": [1]}, 2),
        ("native", "native", {"k": [2]}, 0),
        ("native_async", "native", {"k": [1]}, 2),
        ("verl", "verl", {"data_source": "s", "extra_info": {"index": 3}}, 0.25),
        ("verl_async", "verl", {"data_source": "s"}, 0.25),
        ("verl_async", "verl", {"data_source": "s", "extra_info": {"a": 1}}, 0.75),
        ("verl_async", "verl", {"data_source": "s", "extra_info": None}, 0.25),
        ("trl", "trl", {"k": [1], "prompt": "chat"}, 0.5),
        ("trl_async", "trl", {}, 1.5),
    ],
)
def test_every_signature_plain_and_async(name, signature, meta, reward):
    assert load(function(name, signature))(sample(meta=meta)) == reward


@pytest.mark.parametrize(("case", "reward"), [("true", 1), ("numpy", 3), ("numpy bool", 1), ("no dimension", 0.5)])
def test_numbers_of_every_kind_are_rewards(case, reward):
    found = load(function("answers"))(sample(meta={"case": case}))
    assert found == reward
    assert type(found) is float


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ("nan", "float nan"),
        ("infinity", r"float64 np.float64\(inf\)"),
        ("text", "str '1.0'"),
        ("nothing", "NoneType None"),
        ("list", r"list \[1.0\]"),
        ("vector", r"ndarray array\(\[1.\]\)"),
        ("complex", "complex 1j"),
    ],
)
def test_anything_else_is_an_error_that_shows_it(case, shown):
    with pytest.raises(ValueError, match=rf"must be a finite number, the function returned {shown}"):
        load(function("answers"))(sample(meta={"case": case}))


@pytest.mark.parametrize("result", [[], [1.0, 2.0], 1.0, None, "1"])
def test_a_trl_function_returns_one_number_in_a_list(tmp_path, importable, result):
    importable("trl_result", f"def f(completions, **columns): return {result!r}")
    with pytest.raises(ValueError, match=r"must return a list of one number, it returned (list|float|None|str)"):
        load(function("trl_result:f", "trl"))(sample())


def test_a_verl_dict_needs_its_score(importable):
    importable(
        "verl_result", "def f(data_source, solution_str, ground_truth, extra_info): return {'reward': 1, 'a': 2}"
    )
    with pytest.raises(ValueError, match=r"a dict without 'score'; it has \['a', 'reward'\]"):
        load(function("verl_result:f", "verl"))(sample(meta={"data_source": "s"}))


def test_meta_that_does_not_fit_the_signature_is_named():
    with pytest.raises(ValueError, match=r"needs meta\['data_source'\]; meta has \['b', 'x'\]"):
        load(function("verl", "verl"))(sample(meta={"x": 1, "b": 2}))
    with pytest.raises(ValueError, match=r"passes 'label' itself; meta holds it too"):
        load(function("trl_async", "trl"))(sample(meta={"label": 1}))


def test_the_path_is_resolved_on_loading():
    with pytest.raises(ConfigError, match="has no 'nativ'"):
        load(function("nativ"))
