"""What the model is held against and explained by: the naive oracle, explanations, transcripts."""
