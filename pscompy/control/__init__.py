"""The control plane: who connects to whom, over what, and how both sides know each other."""
