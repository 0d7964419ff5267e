import dataclasses
import json
from pathlib import Path

from sestina.models.files import check_files
from sestina.models.shape import read_shape
from sestina.trainer.recipe import Curriculum, Recipe

ASSETS = Path(__file__).parents[3] / "assets/sums"


def test_the_shipped_model_was_made_by_this_recipe():
    made = json.loads((ASSETS / "recipe.json").read_text())
    assert made["fingerprint"] == Recipe().fingerprint(), "run python launch/warmstart.py"
    assert read_shape(ASSETS) == Recipe().shape()
    check_files(ASSETS, Recipe().shape())
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) <= 4 << 20
    assert 300_000 <= Recipe().shape().num_parameters <= 1_000_000


def test_every_value_of_the_recipe_is_in_its_fingerprint():
    for field in dataclasses.fields(Recipe):
        value = getattr(Recipe(), field.name)
        changed = dataclasses.replace(Recipe(), **{field.name: value + 1})
        assert changed.fingerprint() != Recipe().fingerprint(), field.name


def test_the_curriculum_goes_on_when_a_stage_is_mastered_and_not_before():
    recipe = Recipe()
    curriculum = Curriculum(recipe)
    unavoidable = curriculum._style_nats * 100 / 1000
    for _ in range(50):
        curriculum.learn({"nll": unavoidable + 2 * recipe.mastered, "response_tokens": 1000}, 100)
    assert curriculum.max_terms == 3
    for _ in range(400):
        curriculum.learn({"nll": unavoidable, "response_tokens": 1000}, 100)
    assert curriculum.complete
