"""Gates: everything that can hold a message back, and who passes first when it opens."""
