"""The training loop, told in one place. Every method it calls waits for something with a deadline.

roll out a batch -> train on it -> publish the weights -> evaluate when due -> record -> checkpoint when due
"""

from sestina.controller.session import Session


async def train(session: Session) -> None:
    """Take the run's steps; returns when they are taken or a stop was asked for, with a checkpoint of the last step."""
    await session.connect()
    if session.eval_due():
        session.log(await session.evaluate())
    while session.step < session.config.run.steps:
        batch = await session.roll_out()
        if batch is None:
            break
        metrics = await session.train(batch)
        metrics |= await session.publish()
        if session.eval_due():
            metrics |= await session.evaluate()
        session.log(metrics)
        if session.stopping:
            break  # `finish` saves this step
        if session.checkpoint_due():
            await session.save()
    await session.finish()
