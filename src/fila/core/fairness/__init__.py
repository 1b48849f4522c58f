"""Who is served next: one small interface, and a module for each discipline behind it."""
