"""Looking at an episode file: a summary, a contact sheet with plots, and what viewers need to show it."""
