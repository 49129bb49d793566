"""Where to save a recurrent state. One file a policy; the registry is in hybridsim.policies."""
