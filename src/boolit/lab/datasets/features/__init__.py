"""Images as features of a frozen, pretrained network."""
