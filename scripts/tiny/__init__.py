"""How the bundled model `tiny` is made: text generator, tokenizer, training, evaluation and model card."""
