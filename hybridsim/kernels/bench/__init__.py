"""Speed of the kernels on the card at hand, beside floors measured in the same run and rivals."""
