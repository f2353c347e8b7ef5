"""The tables of Attention Is All You Need, each as one command: the paper's numbers beside ours."""
