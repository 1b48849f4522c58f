"""What a queue's owner decides about messages: who they belong to, and what happens when they fail."""
