"""Which states along one path go when another was saved. Registry in hybridsim.policies."""
