"""What was published, made again: tables of the paper beside ours, studies, and figures of published models."""
