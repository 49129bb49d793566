"""What goes first when memory runs out. One file a policy; registry in hybridsim.policies."""
