"""What run directories say: one reader, figures, a page, a timeline, and what another scheduler would have done."""
