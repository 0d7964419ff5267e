"""What holds of every simulated run that goes on while its trainer works."""

from sestina.simulator.rollouts import driver_of, steps_of


def stays_within_room(world, kind, *, batch, staleness, room):
    """Take the steps of a world with drafts: responses whole, none too old, no instance beyond its room."""
    driver = driver_of(world, kind, None)
    step_of = steps_of(world, driver)
    for step in range(1, world.config.run.steps + 1):
        responses, values = step_of(step)
        assert len(responses) == batch
        assert all(sum(span.num_tokens for span in each.spans) == each.length for each in responses)
        assert values["async/staleness_max"] <= staleness
        assert values["spec/acceptance_length"] > 1.1
    assert max(instance.peak_tokens for instance in driver.instances) <= room
